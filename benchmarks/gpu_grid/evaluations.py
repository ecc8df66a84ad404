"""Does `reparto bench` say the same twice, and does its advice name the fastest device?

    python benchmarks/gpu_grid/evaluations.py                 with a GPU, some minutes
    python benchmarks/gpu_grid/evaluations.py --report FILE

The grid is evaluated twice on the GPU, and twice on the processor up to `--most` parameters, in
folders that know nothing of each other. Steps of the two are held against each other, and the
advice that follows from the first against the devices that are the fastest in the second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from run import environment, parameters

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "evaluations.json"
SHAPES = ((50,), (50, 25), (50, 25, 13))
Json = dict[str, Any]


def evaluated(folder: Path, devices: str, models: list[str], args: argparse.Namespace) -> Json:
    """Rows of the cells that are asked for, and what the evaluation took."""
    out, told = folder / "out", folder / "told.json"
    command = [sys.executable, "-m", "reparto", "bench", "--devices", devices, "--train"]
    command += ["--batch", args.batch, "--models", ",".join(models), "--out", str(out)]
    command += ["--json", str(told), "--advise"]
    targets = [kind for kind in ("grid", "cnn") if (kind == "cnn") == (models == ["cnn"])]
    began = time.monotonic()
    done = subprocess.run([*command, ",".join(targets)], capture_output=True, text=True)
    took_s = time.monotonic() - began
    if not told.exists():
        raise SystemExit(done.stdout[-2000:] + done.stderr[-2000:])
    report = json.loads(told.read_text())
    rows = [
        {
            "model": row["work"]["model"],
            "batch": row["work"]["batch_rows"],
            "device": row["device"],
            "step_s": row["step_s"],
            "flags": row["flags"],
            "failure": row["failure"],
        }
        for row in report["measurements"]
    ]
    return {"took_s": took_s, "rows": rows, "choices": report["advice"]["choices"]}


def measure(args: argparse.Namespace) -> Json:
    """Two evaluations of each device."""
    grid = ["-".join(str(w * 2**k) for w in shape) for shape in SHAPES for k in range(10)]
    small = [name for name in grid if parameters(name) <= args.most]
    found: Json = {"environment": environment(), "most": args.most, "batch": args.batch}
    with tempfile.TemporaryDirectory() as scratch:
        for label in ("first", "second"):
            folder = Path(scratch, label)
            folder.mkdir()
            found[label] = evaluated(folder, args.gpu, grid, args)
            print(label, args.gpu, round(found[label]["took_s"]), "s", flush=True)
            args.out.write_text(json.dumps(found, indent=1) + "\n")
        for label in ("first", "second"):  # in the same folders: what is there is not repeated
            both = evaluated(Path(scratch, label), f"cpu,{args.gpu}", small, args)
            found[f"{label}_both"] = both
            print(label, "cpu", round(both["took_s"]), "s", flush=True)
            args.out.write_text(json.dumps(found, indent=1) + "\n")
    return found


def report(found: Json) -> Json:
    """Spread of the two, and how good the advice of the first is by the second."""
    steps = [
        {(row["model"], row["batch"]): row["step_s"] for row in found[label]["rows"]}
        for label in ("first", "second")
    ]
    apart = {
        cell: abs(steps[1][cell] / first - 1)
        for cell, first in steps[0].items()
        if first and steps[1].get(cell)
    }
    told: Json = {
        "cells": len(apart),
        "seconds": [round(found[label]["took_s"]) for label in ("first", "second")],
        "spread_median": statistics.median(apart.values()),
        "spread_p90": statistics.quantiles(apart.values(), n=10)[-1],
        "spread_most": max(apart.values()),
        "of_all_steps": abs(sum(steps[1][c] for c in apart) / sum(steps[0][c] for c in apart) - 1),
        "above_3_per_cent": sorted(
            [f"{model}/{batch}", round(far, 3)]
            for (model, batch), far in apart.items()
            if far > 0.03
        ),
    }
    if "first_both" in found:
        told["advice"] = _advice(found)
    return told


def _advice(found: Json) -> Json:
    """Where the processor was evaluated once alone, its one figure is on both sides."""
    truth: dict[tuple[str, int], dict[str, float]] = {}
    is_twice = "second_both" in found
    cpu = found["second_both" if is_twice else "first_both"]["rows"]
    for row in [*found["second"]["rows"], *(row for row in cpu if row["device"] == "cpu")]:
        if row["step_s"]:
            truth.setdefault((row["model"], row["batch"]), {})[row["device"]] = row["step_s"]
    regrets = {}
    for choice in found["first_both"]["choices"]:
        cell = (choice["model"], choice["batch_rows"])
        if len(truth.get(cell, {})) == 2:
            regrets[cell] = truth[cell][choice["device"]] / min(truth[cell].values()) - 1
    wrong = {f"{model}/{batch}": far for (model, batch), far in regrets.items() if far > 0}
    return {
        "cells": len(regrets),
        "cpu_evaluated": 2 if is_twice else 1,
        "right": len(regrets) - len(wrong),
        "cpu_is_faster": sum(min(one, key=one.__getitem__) == "cpu" for one in truth.values()),
        "worst_regret": max(regrets.values(), default=0.0),
        "wrong": wrong,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="cuda:0", metavar="DEVICE")
    parser.add_argument("--batch", default="32,1024")
    parser.add_argument("--most", type=int, default=7_000_000, metavar="PARAMETERS")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--report", type=Path)
    args = parser.parse_args()
    found = json.loads(args.report.read_text()) if args.report else measure(args)
    print(json.dumps(report(found), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
