"""What does a GPU give for free? An unmodified CPU script beside what one may write by hand.

    python benchmarks/gpu_grid/run.py                on a machine with a GPU, some minutes
    python benchmarks/gpu_grid/run.py --report FILE  the bars, from results

Each way runs all models in one process, so that a start is paid once; the ways one after another.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import grid

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "h200.json"
WAYS = ("ours", "f32", "relaxed", "tf32", "bf16", "slices", "plain", "later", "relaxed-later")
#: Steps are compiled after a minute; here that is done at once, and takes this time.
COMPILING_S = 1.5
#: Above so many parameters a step is all products of matrices.
COMPILED = 7_000_000
Json = dict[str, Any]


def measure(way: str, models: str, seconds: float, folder: Path) -> tuple[Json, list[str]]:
    """Run all models in one way.

    Returns:
        The median step of each, without its first two epochs, and what the run had to tell.
    """
    out = folder / f"{way}.jsonl"
    environment = dict(os.environ)
    if way.endswith("later"):
        chosen = grid.names() if models == "all" else models.split(",")
        models = ",".join(name for name in chosen if parameters(name) <= COMPILED)
        seconds += COMPILING_S
        environment["REPARTO_COMPILE_AFTER"] = "0"
    own = ["--models", models, "--seconds", str(seconds), "--out", str(out)]
    if way in ("ours", "relaxed", "later", "relaxed-later"):
        more = ["--relaxed"] if way.startswith("relaxed") else []
        script = str(HERE / "grid.py")
        result = ["--json", str(folder / f"{way}.run.json")]
        command = ["-m", "reparto", "run", "--accelerate", "--no-probe", *more, *result, script]
    else:
        command = [str(HERE / "peers.py"), way]
    began = time.time()
    told = subprocess.run(
        [sys.executable, *command, *own], capture_output=True, text=True, env=environment
    )
    if told.returncode:
        print(told.stdout[-2000:], told.stderr[-2000:])
    rows: Json = {}
    for line in out.read_text().splitlines() if out.exists() else ():
        row = json.loads(line)
        steps = row["step_s"][2:] or row["step_s"]
        if way.endswith("later"):  # compiled in the first epoch
            steps = steps[-3:]
        rows[row["model"]] = {"step_s": statistics.median(steps), "loss": row["loss"]}
    run = folder / f"{way}.run.json"
    notes = json.loads(run.read_text())["result"]["notes"] if run.exists() else []
    run.unlink(missing_ok=True)
    out.unlink(missing_ok=True)
    print(f"{way}: {len(rows)} models, {time.time() - began:.0f} s {notes}", flush=True)
    return rows, notes


def environment() -> Json:
    """Where it was measured."""
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else ""
    return {
        "gpu": gpu,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
    }


def parameters(name: str) -> int:
    """How many parameters a model of the grid has."""
    if name == "cnn":
        return 4_352_641
    sizes = [50, *map(int, name.split("-")), 1]
    return sum(a * b + b for a, b in pairwise(sizes))


def report(found: Json) -> Json:
    """The bars of the issue, as ratios of steps in the same run."""
    ways = found["ways"]
    rows = []
    for name in ways.get("ours", {}):
        seconds = {way: ways[way][name]["step_s"] for way in ways if name in ways[way]}
        lower = [seconds[way] for way in ("tf32", "bf16") if way in seconds]
        row: Json = {"model": name, "parameters": parameters(name), "step_s": seconds}
        if "f32" in seconds:
            row["over_captured_f32"] = seconds["ours"] / seconds["f32"]
        if lower and "relaxed" in seconds:
            row["over_best_captured"] = seconds["relaxed"] / min(lower)
        for peer in ("slices", "plain"):
            if peer in seconds:
                row[f"sooner_than_{peer}"] = seconds[peer] / seconds["ours"]
                for way in ("relaxed", "later", "relaxed-later"):
                    if way in seconds:
                        name = f"{way.replace('-', '_')}_sooner_than_{peer}"
                        row[name] = seconds[peer] / seconds[way]
        rows.append(row)
    return {"environment": found["environment"], "rows": rows}


def show(told: Json) -> None:
    """A table of ratios."""
    names = (
        "over_captured_f32",
        "over_best_captured",
        "sooner_than_slices",
        "sooner_than_plain",
        "relaxed_sooner_than_slices",
        "relaxed_sooner_than_plain",
        "later_sooner_than_slices",
        "later_sooner_than_plain",
        "relaxed_later_sooner_than_slices",
        "relaxed_later_sooner_than_plain",
    )
    print("model", "parameters", "ours ms", *names)
    for row in told["rows"]:
        ratios = [f"{row[name]:.3f}" if name in row else "-" for name in names]
        print(row["model"], row["parameters"], f"{1000 * row['step_s']['ours']:.3f}", *ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="all")
    parser.add_argument("--seconds", type=float, default=0.8)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    if args.report:
        show(report(json.loads(args.report.read_text())))
        return 0
    args.out.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(args.out.read_text())["ways"] if args.out.exists() else {}
    found: Json = {"environment": environment(), "ways": before}
    for way in args.ways.split(","):
        rows, notes = measure(way, args.models, args.seconds, args.out.parent)
        found["ways"].setdefault(way, {}).update(rows)
        found.setdefault("notes", {})[way] = notes
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    show(report(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
