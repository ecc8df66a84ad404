"""Every script of tests/scripts at 1, 2, 3 and 4 workers against itself alone. See README.md.

    python benchmarks/transparency/run.py                          everything, about 20 minutes
    python benchmarks/transparency/run.py --workers 2 --only gan   some

A run that is broken off goes on where it was when it is started again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SCRIPTS = ROOT / "tests" / "scripts"
LIMIT = 1e-7

Json = dict[str, Any]


def proof(script: Path, workers: int, steps: int, precision: str) -> Json:
    """What ``verify`` finds, in one row."""
    from reparto.errors import RefusedError, RepartoError
    from reparto.verify import verify

    began = time.perf_counter()
    row: Json = {"script": script.relative_to(SCRIPTS).as_posix(), "workers": workers}
    wanted = None if precision == "float64" else precision
    try:
        found = verify(script, workers=workers, steps=steps, precision=wanted)  # type: ignore[arg-type]
    except RefusedError as error:
        code = re.search(r"C\d+", str(error))
        return {**row, "verdict": "refused", "why": code[0] if code else str(error)}
    except RepartoError as error:
        return {**row, "verdict": "failed", "why": str(error)[-500:]}
    excused = [one.name for one in found.tensors if one.distance > found.tolerance]
    return {
        **row,
        "verdict": found.verdict,
        "precision": found.precision,
        "steps": found.num_steps,
        "gradient": max((one.distance for one in found.gradients), default=0.0),
        "loss": max((one.distance for one in found.losses), default=0.0),
        "tensor": max(
            (one.distance for one in found.tensors if one.name not in excused), default=0.0
        ),
        "held_against_noise": excused,
        "why": str(found.divergence) if found.divergence else "",
        "seconds": round(time.perf_counter() - began, 1),
    }


def sweep(scripts: list[Path], args: argparse.Namespace, path: Path) -> list[Json]:
    from tests.forked import forked_workers

    rows: list[Json] = json.loads(path.read_text())["rows"] if path.exists() else []
    done = {(row["script"], row["workers"]) for row in rows}
    with forked_workers(), tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for workers in args.workers:
            for script in scripts:
                name = script.relative_to(SCRIPTS).as_posix()
                if (name, workers) in done:
                    continue
                row = proof(script, workers, args.steps, args.precision)
                rows.append(row)
                print(line(row), flush=True)
                text = json.dumps({"environment": environment(), "rows": rows}, indent=1)
                path.write_text(text + "\n")
    return rows


def line(row: Json) -> str:
    told = (
        row["why"][:60] if "gradient" not in row else f"{row['gradient']:.1e} {row['tensor']:.1e}"
    )
    return f"{row['script']:<36} {row['workers']} workers  {row['verdict']:<8} {told}"


def environment() -> Json:
    import torch

    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=HERE, capture_output=True, text=True
    )
    return {
        "torch": torch.__version__,
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d"),
    }


def summary(rows: list[Json]) -> str:
    """Rows of the README's table."""
    lines = ["| workers | equal | refused | wrong | worst gradient | worst parameter |"]
    lines.append("|---|---|---|---|---|---|")
    for workers in sorted({row["workers"] for row in rows}):
        of = [row for row in rows if row["workers"] == workers]
        equal = [row for row in of if row["verdict"] == "equal"]
        refused = [row for row in of if row["verdict"] == "refused"]
        worst = [max((row[kind] for row in equal), default=0.0) for kind in ("gradient", "tensor")]
        wrong = len(of) - len(equal) - len(refused)
        lines.append(
            f"| {workers} | {len(equal)} | {len(refused)} | {wrong} "
            f"| {worst[0]:.1e} | {worst[1]:.1e} |"
        )
    return "\n".join(lines)


def plot(rows: list[Json], path: Path) -> None:
    """Worst distance of each script, in the order of size."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for workers, mark in zip((2, 3, 4), "o^s", strict=True):
        worst = sorted(
            max(row["gradient"], 1e-17)
            for row in rows
            if row["workers"] == workers and row["verdict"] == "equal"
        )
        if worst:
            axes.semilogy(worst, mark, markersize=4, label=f"{workers} workers")
    axes.axhline(LIMIT, color="tab:red", linewidth=1)
    axes.annotate("limit", (0, LIMIT), xytext=(0, 4), textcoords="offset points", color="tab:red")
    axes.set(xlabel="scripts, sorted", ylabel="worst ‖Δg‖/‖g‖ over all steps")
    axes.set_title("Shared out against alone, in float64")
    axes.legend(loc="center left")
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3, 4], metavar="N")
    parser.add_argument("--only", default="", metavar="REGEX", help="of the scripts' names")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precision", choices=("float64", "float32"), default="float64")
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="FOLDER")
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    results = args.results.resolve()
    results.mkdir(exist_ok=True)
    scripts = [*sorted(SCRIPTS.glob("*.py")), SCRIPTS / "project" / "train.py"]
    chosen = [path for path in scripts if re.search(args.only, path.name)]
    rows = sweep(chosen, args, results / f"{args.precision}.json")
    print(summary(rows))
    if args.precision == "float64":
        plot(rows, results / "float64.png")


if __name__ == "__main__":
    main()
