"""What does acceleration give on a CPU? The grid's script under plain Python and under reparto.

    python benchmarks/cpu_grid/run.py            about 12 minutes on a quiet machine
    python benchmarks/cpu_grid/run.py --report   the bars, from results

Both take turns. Each model's speed is that of its passes over the data, without the first ones,
in which memory is taken and ways are tried; the ratio's interval is found by drawing passes again
(bootstrap, seeded).
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
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "gpu_grid" / "grid.py"
RESULTS = HERE / "results" / "cpu.json"
CNN_PARAMETERS = 4_352_641
WAYS = ("plain", "ours")
Json = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How models up to so many parameters are measured.

    Attributes:
        most: Parameters; those that the sizes before it do not take.
        rounds: So often plain and accelerated.
        seconds: As long as that, or so many passes if they take longer.
        batches: A pass.
        passes: At least so many, plain and accelerated.
        dropped: The share of passes that are not counted, plain and accelerated.
    """

    most: int
    rounds: int
    seconds: float
    batches: int
    passes: tuple[int, int]
    dropped: tuple[float, float] = (0.5, 0.5)


#: Steps take up to 0.02, 0.3, 1 and 12 s here. The last ones have time for few steps alone:
#: plain the third is like any other, accelerated the twelfth is the first after the trials.
SIZES = (
    Size(100_000, 2, 0.8, 4, (4, 4)),
    Size(4_000_000, 2, 3.0, 4, (4, 4)),
    Size(50_000_000, 1, 8.0, 1, (12, 24)),
    Size(10**9, 1, 0.0, 1, (6, 15), (0.4, 0.75)),
)


def models(size: Size) -> list[str]:
    """Names of the grid's models of a size."""
    least = max((one.most for one in SIZES if one.most < size.most), default=0)
    shapes = [(depth, 2**k) for depth in (1, 2, 3) for k in range(10)]
    found = ["-".join(str(w * by) for w in (50, 25, 13)[:depth]) for depth, by in shapes]
    return [name for name in [*found, "cnn"] if least <= parameters(name) < size.most]


def parameters(name: str) -> int:
    """How many parameters a model has."""
    if name == "cnn":
        return CNN_PARAMETERS
    sizes = [50, *map(int, name.split("-")), 1]
    return sum(a * b + b for a, b in pairwise(sizes))


def one_round(way: str, size: Size) -> tuple[dict[str, list[float]], list[str]]:
    """Seconds a step of each model, a number for each pass, and what the run had to tell."""
    with tempfile.TemporaryDirectory() as folder:
        out, result = f"{folder}/{way}.jsonl", Path(folder, "run.json")
        passes = size.passes[WAYS.index(way)]
        own = ["--models", ",".join(models(size)), "--seconds", str(size.seconds), "--out", out]
        own += ["--batches", str(size.batches), "--passes", str(passes)]
        how = ["-m", "reparto", "run", "--accelerate", "--no-probe", "--json", str(result)]
        command = [sys.executable, *(how if way == "ours" else ()), str(SCRIPT), *own]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        rows = [json.loads(line) for line in Path(out).read_text().splitlines()]
        told = json.loads(result.read_text())["result"]["notes"] if result.exists() else []
    return {row["model"]: [round(one, 7) for one in row["step_s"]] for row in rows}, told


def counted(name: str, way: str, rounds: list[list[float]]) -> list[float]:
    """The passes that count, of all rounds."""
    size = next(one for one in SIZES if name in models(one))
    share = size.dropped[WAYS.index(way)]
    return [step for one in rounds for step in one[round(share * len(one)) :]]


def report(found: Json) -> Json:
    """The bars: intervals of speed over plain Python's, and their geometric mean."""
    rows = []
    for name in found["plain"]:
        plain, ours = (counted(name, way, found[way][name]) for way in WAYS)
        draws = random.Random(0)
        ratios = sorted(
            statistics.median(draws.choices(plain, k=len(plain)))
            / statistics.median(draws.choices(ours, k=len(ours)))
            for _ in range(2000)
        )
        rows.append(
            {
                "model": name,
                "plain_s": statistics.median(plain),
                "ours_s": statistics.median(ours),
                "ratio": statistics.median(plain) / statistics.median(ours),
                "low": ratios[50],
                "high": ratios[1949],
            }
        )
    return {
        "geometric_mean": statistics.geometric_mean(row["ratio"] for row in rows),
        "wholly_below_0.97": [row["model"] for row in rows if row["high"] < 0.97],
        "rows": rows,
    }


def measure(most: int) -> Json:
    """All sizes, in rounds."""
    import torch

    found: Json = {"plain": {}, "ours": {}, "notes": []}
    for size in SIZES:
        if not models(size) or size.most > most:
            continue
        for number in range(size.rounds):
            for way in WAYS if number % 2 == 0 else WAYS[::-1]:
                began = time.time()
                steps, told = one_round(way, size)
                for name, one in steps.items():
                    found[way].setdefault(name, []).append(one)
                found["notes"] += [told] if told else []
                took = f"{time.time() - began:.0f} s"
                print(f"below {size.most}, round {number + 1}, {way}: {took}", told, flush=True)
    found["environment"] = {
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "processor": torch.cpu.get_capabilities().get("cpu_name", platform.machine()),
        "date": time.strftime("%Y-%m-%d"),
    }
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--most", type=int, default=10**9, metavar="PARAMETERS")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    args = parser.parse_args()
    if not args.report:
        args.results.parent.mkdir(exist_ok=True)
        args.results.write_text(json.dumps(measure(args.most)) + "\n")
    told = report(json.loads(args.results.read_text()))
    for row in told["rows"]:
        between = f"{row['low']:.3f} to {row['high']:.3f}"
        steps = f"{1e3 * row['plain_s']:10.2f} ms {1e3 * row['ours_s']:10.2f} ms"
        print(f"{row['model']:20} {steps}  {row['ratio']:.3f}  {between}")
    print("geometric mean", round(told["geometric_mean"], 3), "below", told["wholly_below_0.97"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
