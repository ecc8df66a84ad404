"""What does acceleration give on a CPU? The grid's script under plain Python and under reparto.

    python benchmarks/cpu_grid/run.py            some minutes on a quiet machine
    python benchmarks/cpu_grid/run.py --report   the bars, from results

Rounds of both take turns. Each model's speed is that of its passes over the data; the ratio's
interval is found by drawing passes again (bootstrap, seeded).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "gpu_grid" / "grid.py"
RESULTS = HERE / "results" / "cpu.json"
#: Larger ones take minutes a pass here.
MOST_PARAMETERS = 7_000_000
CNN_PARAMETERS = 4_352_641
Json = dict[str, Any]


def models(most: int) -> list[str]:
    """Names of the grid's models with fewer parameters than that."""
    shapes = [(depth, 2**k) for depth in (1, 2, 3) for k in range(10)]
    found = ["-".join(str(w * by) for w in (50, 25, 13)[:depth]) for depth, by in shapes]
    small = [name for name in found if parameters(name) < most]
    return [*small, "cnn"] if most > CNN_PARAMETERS else small


def parameters(name: str) -> int:
    """How many parameters a perceptron has."""
    sizes = [50, *map(int, name.split("-")), 1]
    return sum(a * b + b for a, b in pairwise(sizes))


def one_round(way: str, seconds: float, most: int) -> dict[str, list[float]]:
    """Seconds a step of each model, a number for each pass but the first two."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/{way}.jsonl"
        own = ["--models", ",".join(models(most)), "--seconds", str(seconds)]
        own += ["--samples", "4000", "--out", out]
        how = ["-m", "reparto", "run", "--accelerate", "--no-probe"] if way == "ours" else []
        command = [sys.executable, *how, str(SCRIPT), *own]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        rows = [json.loads(line) for line in Path(out).read_text().splitlines()]
    return {row["model"]: row["step_s"][2:] for row in rows}


def report(found: Json) -> Json:
    """The bars: intervals of speed over plain Python's, and their geometric mean."""
    rows = []
    for name in found["plain"]:
        plain = [step for one in found["plain"][name] for step in one]
        ours = [step for one in found["ours"][name] for step in one]
        draws = random.Random(0)
        ratios = sorted(
            statistics.median(draws.choices(plain, k=len(plain)))
            / statistics.median(draws.choices(ours, k=len(ours)))
            for _ in range(2000)
        )
        ratio = statistics.median(plain) / statistics.median(ours)
        rows.append({"model": name, "ratio": ratio, "low": ratios[50], "high": ratios[1949]})
    return {
        "geometric_mean": statistics.geometric_mean(row["ratio"] for row in rows),
        "wholly_below_0.97": [row["model"] for row in rows if row["high"] < 0.97],
        "rows": rows,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.6)
    parser.add_argument("--most", type=int, default=MOST_PARAMETERS, metavar="PARAMETERS")
    parser.add_argument("--report", action="store_true")
    args = parser.parse_args()
    if not args.report:
        import torch

        found: Json = {"plain": {}, "ours": {}}
        for number in range(args.rounds):
            for way in ("plain", "ours") if number % 2 == 0 else ("ours", "plain"):
                began = time.time()
                for name, steps in one_round(way, args.seconds, args.most).items():
                    found[way].setdefault(name, []).append(steps)
                print(f"round {number + 1}, {way}: {time.time() - began:.0f} s", flush=True)
        found["environment"] = {
            "cores": os.cpu_count(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "date": time.strftime("%Y-%m-%d"),
        }
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found) + "\n")
    told = report(json.loads(RESULTS.read_text()))
    for row in told["rows"]:
        print(f"{row['model']:20} {row['ratio']:.3f}  {row['low']:.3f} to {row['high']:.3f}")
    print("geometric mean", round(told["geometric_mean"], 3), "below", told["wholly_below_0.97"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
