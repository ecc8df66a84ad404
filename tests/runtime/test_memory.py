"""The peak of a worker, and the guard that ends it before memory runs out."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

MIB = 1 << 20

PROGRAM = """
import json, sys, time
from reparto.runtime._memory import MemoryMeter
held = bytearray(200 << 20)  # before the script begins: not part of its peak
del held
def exceeded(failure):
    print(json.dumps([failure.error, failure.message]), flush=True)
limit = MemoryMeter(on_gpu=False, memory_bytes=None, on_exceeded=exceeded)
limit.begin()
idle = limit.told()["idle_bytes"]
room, wanted = int(sys.argv[1]) << 20, int(sys.argv[2])
meter = MemoryMeter(on_gpu=False, memory_bytes=idle + room, on_exceeded=exceeded)
meter.begin()
blocks = []
for _ in range(wanted):
    blocks.append(bytes(1 << 20).replace(b"\\0", b"1"))
    time.sleep(0.001)
del blocks
print(json.dumps(meter.told(held_bytes=7)))
"""


def run(room, wanted):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(room), str(wanted)],
        capture_output=True,
        text=True,
        timeout=200,
    )


def test_peak_is_that_since_the_script_began():
    done = run(400, 50)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    risen = told["peak_bytes"] - told["idle_bytes"] - 7
    assert 50 * MIB <= risen < 60 * MIB
    assert told["memory_device"] == "cpu"
    assert told["free_bytes"] > told["peak_bytes"]


def test_worker_that_takes_too_much_says_so_and_ends():
    done = run(60, 3000)
    assert done.returncode == 1, done.stderr
    error, message = json.loads(done.stdout)
    assert error == "OutOfMemoryError"
    assert "MiB allowed" in message


def test_allocation_that_cannot_fit_is_refused_before_it_is_made():
    program = PROGRAM.replace("blocks = []\n", "blocks = [bytearray(8 << 30)]\n")
    done = subprocess.run(
        [sys.executable, "-c", program, "60", "1"], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
