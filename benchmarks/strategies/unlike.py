"""Two fast and two slow workers: slices in proportion to speed, against equal ones.

    python benchmarks/strategies/unlike.py          as root: CPU quotas of control groups (v1)

Each worker takes the control group of its rank, with 40 % or 20 % of a core and a period of 10 ms.
The batch is so large that a slow worker spends more than 50 ms of CPU on its slice of it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
CPU = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 10_000
SCRIPT = HERE / "convnet.py"
BATCH_SIZE = 800


def made_groups(cores: list[float]) -> list[Path]:
    """A control group a worker."""
    folders = []
    for rank, share in enumerate(cores):
        folder = CPU / f"reparto-unlike-{os.getpid()}-{rank}"
        folder.mkdir()
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD_US)))
        folders.append(folder)
    return folders


def rate(folders: list[Path], steps: int, skip: int, *command: str) -> float:
    """Samples a second over the last steps, as the script itself measures."""
    env = {**os.environ, "UNLIKE_CGROUPS": ":".join(map(str, folders))}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(BIN / "reparto"), *command, str(SCRIPT), "--steps", str(steps),
             "--skip", str(skip), "--batch-size", str(BATCH_SIZE)],
            env=env, cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    found = re.search(r"rate (\d+\.\d+)", done.stdout)
    if found is None:
        raise SystemExit(done.stdout + done.stderr)
    return float(found[1])


def shared_out(folders: list[Path], balance: str) -> float:
    steps, skip = (90, 40) if balance == "auto" else (30, 10)
    return rate(folders, steps, skip, "run", "--no-probe", "--workers", "4", "--threads", "1",
                "--strategy", "all-reduce", "--set", f"balance={balance}")  # fmt: skip


def alone(folder: Path) -> float:
    return rate([folder], 12, 3, "run", "--strategy", "single", "--threads", "1")


def together(folders: list[Path]) -> float:
    """The sum of four runs that train alone, side by side: what the machine can give at most."""
    with ThreadPoolExecutor(len(folders)) as pool:
        return sum(pool.map(alone, folders))


def verified() -> str:
    """Whether the training with such slices is the sequential one."""
    words = ["verify", "--workers", "4", "--steps", "20", "--set", "balance=2:2:1:1"]
    done = subprocess.run(
        [str(BIN / "reparto"), *words, str(SCRIPT)], capture_output=True, text=True
    )
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=float, nargs=4, default=[0.4, 0.4, 0.2, 0.2])
    parser.add_argument("--results", type=Path, default=HERE / "results" / "unlike.json")
    args = parser.parse_args()
    folders = made_groups(args.cores)
    rows: list[dict[str, Any]] = []
    try:
        for number in range(args.rounds):
            row = {"each_alone": [alone(folder) for folder in folders],
                   "together": together(folders),
                   "even": shared_out(folders, "even"),
                   "auto": shared_out(folders, "auto")}  # fmt: skip
            row["gain"] = row["auto"] / row["even"]
            row["of_sum"] = row["auto"] / sum(row["each_alone"])
            row["of_together"] = row["auto"] / row["together"]
            rows.append(row)
            told = {name: row[name] for name in ("each_alone", "together", "even", "auto")}
            gains = f"gain {row['gain']:.3f}  of sum {row['of_sum']:.3f}"
            print(f"{number}: {told}  {gains}", flush=True)
    finally:
        time.sleep(1)
        for folder in folders:
            folder.rmdir()
    found = {
        name: statistics.median(row[name] for row in rows)
        for name in ("gain", "of_sum", "of_together")
    }
    print(found)
    report: dict[str, Any] = {
        "cores": args.cores,
        "period_us": PERIOD_US,
        "medians": found,
        "rounds": rows,
    }
    args.results.parent.mkdir(exist_ok=True)
    args.results.write_text(json.dumps(report, indent=1) + "\n")
    report["verify"] = verified()
    print(report["verify"])
    args.results.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
