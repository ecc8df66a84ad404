"""`reparto --help` answers at once: it imports none of the heavy libraries."""

import json
import subprocess
import sys
import time

import pytest
from tests.patience import quickest

pytestmark = pytest.mark.alone

HEAVY = ("torch", "libcst", "pydantic")
LIMIT_S = 0.3
NUM_TIMED = 10

# Runs what the console script runs, then writes to stderr which heavy modules were loaded.
PROGRAM = f"""
import json, sys
sys.argv = ["reparto", "--help"]
from reparto.cli import main
try:
    status = main()
except SystemExit as exit:
    status = exit.code
loaded = [name for name in {HEAVY!r} if name in sys.modules]
print(json.dumps({{"status": status or 0, "loaded": loaded}}), file=sys.stderr)
"""


def run_help():
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    elapsed_s = time.perf_counter() - begin
    assert done.returncode == 0, done.stderr
    return done, elapsed_s


def test_help_imports_no_heavy_library():
    done, _ = run_help()
    assert "usage" in done.stdout.lower()
    assert json.loads(done.stderr.splitlines()[-1]) == {"status": 0, "loaded": []}


def test_help_answers_within_a_third_of_a_second():
    run_help()  # compiles and reads from disk
    elapsed_s = quickest(lambda: run_help()[1], LIMIT_S, NUM_TIMED)
    assert elapsed_s <= LIMIT_S
