"""Memory, bytes and time of `sharded` beside `all-reduce`; see README.md.

python benchmarks/sharded/run.py
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from reparto.spec import Cluster, Host, Profile
from reparto.strategies import AllReduce, Sharded

HERE = Path(__file__).resolve().parent
SHAPES = ((2048, 32), (2048,), *((2048, 2048), (2048,)) * 12, (4, 2048), (4,))
CELLS: dict[str, tuple[str, tuple[str, ...], Any]] = {
    "all-reduce": ("all-reduce", (), AllReduce.Config()),
    "sharded": ("sharded", (), Sharded.Config()),
    "sharded, keep 16 MiB": (
        "sharded", ("keep_bytes=16777216",), Sharded.Config(keep_bytes=2**24),
    ),
}  # fmt: skip


def measured(name: str, workers: int) -> dict[str, Any]:
    """One run, as its own processes."""
    strategy, settings, config = CELLS[name]
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "result.json"
        command = [
            *(sys.executable, "-m", "reparto", "run", "--no-probe", "--workers", str(workers)),
            *("--strategy", strategy, *[word for one in settings for word in ("--set", one)]),
            *("--json", str(told), str(HERE / "deep.py")),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        result = json.loads(told.read_text())
    result = result.get("result", result)
    numbers = re.search(r"empty (\d+) rest (\d+) peak (\d+) loss (\S+)", done.stdout)
    assert numbers is not None, done.stdout
    empty, rest, peak = (int(numbers[place]) for place in (1, 2, 3))
    count = sum(torch.Size(shape).numel() for shape in SHAPES)
    profile = Profile(num_parameters=count, gradient_bytes=4 * count, shapes=SHAPES)
    cluster = Cluster(hosts=tuple(Host(name=str(rank)) for rank in range(workers)))
    traffic = config.traffic(profile, cluster)
    return {
        "strategy": name,
        "workers": workers,
        "parameters_mib": 4 * count >> 20,
        "at_rest_mib": rest - empty,
        "peak_mib": peak - empty,
        "step_s": result["train_s"] / (result["num_steps"] - 1),
        "sent_mib_a_step": result["bytes_sent"] / result["num_steps"] / 2**20,
        "foretold_mib_a_step": sum(one.size_bytes for one in traffic) / 2**20,
        "wire_mib_a_step": sum(one.wire_bytes(workers) for one in traffic) / 2**20,
        "loss": float(numbers[4]),
    }


def main() -> None:
    """All cells, into results/."""
    rows = []
    for workers in (2, 3, 4):
        for name in CELLS:
            rows.append(measured(name, workers))
            print(json.dumps(rows[-1]), flush=True)
    environment = {"torch": torch.__version__, "python": platform.python_version(),
                   "machine": platform.machine(), "cores": os.cpu_count()}  # fmt: skip
    (HERE / "results").mkdir(exist_ok=True)
    told = json.dumps({"environment": environment, "rows": rows}, indent=1)
    (HERE / "results" / "memory.json").write_text(told + "\n")


if __name__ == "__main__":
    main()
