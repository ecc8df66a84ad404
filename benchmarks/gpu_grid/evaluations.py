"""Does `reparto bench` say the same twice, and does its advice name the fastest device?

    python benchmarks/gpu_grid/evaluations.py --part gpu1     whole grid on the GPU, some minutes
    python benchmarks/gpu_grid/evaluations.py --part gpu2,cpu1,cpu2
    python benchmarks/gpu_grid/evaluations.py --report        from the parts that are there

Each part is an evaluation by the command itself, in a folder that knows nothing of the others:
twice the whole grid on the GPU (training and inference, all forms), and twice the training of the
processor up to `--most` parameters. The advice that follows from the first of both is judged by
the second of both, and the other way round. A part that takes too long is ended, and keeps the
rows that it has.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from run import environment, parameters

from reparto.bench import advise, guarded
from reparto.bench._statistics import percentile
from reparto.bench._worker import row_of
from reparto.spec import Measurement, Work

HERE = Path(__file__).resolve().parent
PARTS = ("gpu1", "gpu2", "cpu1", "cpu2")
SHAPES = ((50,), (50, 25), (50, 25, 13))
SAME = 0.03  # the bar: how far apart two evaluations may be
_LOOK_S, _TELL_S, _GRACE_S = 0.1, 20.0, 20.0
Json = dict[str, Any]


def command_of(part: str, folder: Path, args: argparse.Namespace) -> list[str]:
    """What a user would enter."""
    command = [sys.executable, "-m", "reparto", "bench", "--out", str(folder)]
    if part.startswith("gpu"):
        return [*command, "--devices", args.gpu, *args.more]
    grid = ["-".join(str(w * 2**k) for w in shape) for shape in SHAPES for k in range(10)]
    small = [name for name in grid if parameters(name) <= args.most]
    command += ["--devices", "cpu", "--train", "--batch", args.batch, "--models", ",".join(small)]
    return [*command, "grid"]


def evaluated(part: str, args: argparse.Namespace) -> Json:
    """Evaluate once; what came of it, and what took the time."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "out")
        caches = {
            name: str(Path(scratch, name))
            for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
        }
        command = command_of(part, folder, args)
        print(f"{part}: {' '.join(command[1:])}", flush=True)
        began = time.monotonic()
        with Path(scratch, "printed").open("w") as printed:
            process = subprocess.Popen(
                command, stdout=printed, stderr=printed, env={**os.environ, **caches}
            )
            stamps = _watched(part, process, folder / "rows.jsonl", began + args.seconds)
        took_s = time.monotonic() - began
        lines = _lines(folder / "rows.jsonl")
        if not lines:
            raise SystemExit(Path(scratch, "printed").read_text()[-3000:])
    rows = guarded([row_of(json.loads(line)["row"]) for line in lines])
    print(f"{part}: {len(rows)} rows in {took_s:.0f} s, exit {process.returncode}", flush=True)
    return {
        "environment": environment(),
        "part": part,
        "complete": process.returncode == 0,
        "took_s": took_s,
        "seconds_by_kind": _by_kind(rows, [0.0, *(stamp - began for stamp in stamps)]),
        "rows": [_kept(row) for row in rows],
    }


def _watched(part: str, process: subprocess.Popen[bytes], path: Path, until: float) -> list[float]:
    """When each row came. The command is ended when time is up, as Ctrl-C ends it."""
    stamps: list[float] = []
    tell = time.monotonic() + _TELL_S
    while process.poll() is None:
        time.sleep(_LOOK_S)
        now, count = time.monotonic(), len(_lines(path))
        stamps += [now] * (count - len(stamps))
        if now > tell:
            print(f"{part}: {count} rows", flush=True)
            tell = now + _TELL_S
        if now > until:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return stamps + [time.monotonic()] * (len(_lines(path)) - len(stamps))


def _lines(path: Path) -> list[str]:
    """Whole lines: the last one may be half written."""
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def _by_kind(rows: Iterable[Measurement], stamps: list[float]) -> dict[str, float]:
    """Seconds from row to row, added up; the start belongs to the first row."""
    found: dict[str, float] = defaultdict(float)
    for row, before, after in zip(rows, stamps, stamps[1:], strict=False):
        found[f"{row.mode} {row.form}"] += round(after - before, 3)
    return {kind: round(seconds, 1) for kind, seconds in found.items()}


def _kept(row: Measurement) -> Json:
    work = row.work
    return {
        **{"suite": work.suite, "model": work.model, "parameters": work.num_parameters},
        **{"batch": work.batch_rows, "mode": row.mode, "form": row.form, "device": row.device},
        **{"step_s": row.step_s, "low_s": row.low_s, "high_s": row.high_s},
        **{"p99_s": row.p99_s, "loss_last": row.loss_last, "steps": row.num_steps},
        **{"flags": row.flags, "notes": row.notes, "failure": row.failure},
    }


# --------------------------------------------------------------------------------- report


def report(parts: dict[str, Json]) -> Json:
    """Spread of the two on the GPU, and how good the advice of either is by the other."""
    told: Json = {
        "seconds": {name: round(part["took_s"]) for name, part in parts.items()},
        "seconds_by_kind": {name: part["seconds_by_kind"] for name, part in parts.items()},
        "incomplete": [name for name, part in parts.items() if not part["complete"]],
        "flags": {name: _flags(part["rows"]) for name, part in parts.items()},
    }
    for kind in ("gpu", "cpu"):
        if {f"{kind}1", f"{kind}2"} <= parts.keys():
            told[f"spread_{kind}"] = spread(*(parts[f"{kind}{n}"]["rows"] for n in (1, 2)))
    if parts.keys() >= {"gpu1", "gpu2", "cpu1"}:
        # Evaluated once, the processor has the same figures on both sides.
        parts = {"cpu2": parts["cpu1"], **parts}
        told["cpu_is_evaluated_twice"] = parts["cpu2"] is not parts["cpu1"]
        told["advice"] = [judged(parts, one, other) for one, other in (("1", "2"), ("2", "1"))]
    return told


def _flags(rows: Iterable[Json]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for row in rows:
        for flag in row["flags"]:
            found[f"{row['mode']} {row['form']}: {flag}"] += 1
    return dict(found)


def spread(first: list[Json], second: list[Json]) -> Json:
    """How far apart the two are, by form, and all of them."""
    steps = [
        {_cell(row): row["step_s"] for row in rows if row["step_s"]} for rows in (first, second)
    ]
    far = {
        cell: abs(steps[1][cell] / step_s - 1)
        for cell, step_s in steps[0].items()
        if cell in steps[1]
    }
    kinds = sorted({cell[:2] for cell in far})
    named: dict[str, Callable[[tuple[Any, ...]], bool]] = {
        f"{mode} {form}": lambda cell, kind=(mode, form): cell[:2] == kind  # type: ignore[misc]
        for mode, form in kinds
    }
    named["all"] = lambda cell: True
    return {
        name: _summary({cell: apart for cell, apart in far.items() if belongs(cell)}, steps)
        for name, belongs in named.items()
    }


def _summary(far: dict[tuple[Any, ...], float], steps: list[dict[tuple[Any, ...], float]]) -> Json:
    apart = sorted(far.values())
    worst = sorted(far, key=far.__getitem__, reverse=True)[:5]
    return {
        "rows": len(far),
        "median": round(statistics.median(apart), 4),
        "p90": round(percentile(apart, 0.9), 4),
        "worst": round(apart[-1], 4),
        "within_3_per_cent": round(sum(one <= SAME for one in apart) / len(apart), 4),
        "of_all_steps": round(
            abs(sum(steps[1][cell] for cell in far) / sum(steps[0][cell] for cell in far) - 1), 4
        ),
        "the_worst": {"/".join(map(str, cell)): round(far[cell], 3) for cell in worst},
    }


def _cell(row: Json) -> tuple[Any, ...]:
    return row["mode"], row["form"], row["model"], row["batch"]


def judged(parts: dict[str, Json], one: str, other: str) -> Json:
    """The advice of one evaluation of both devices, by the times of the other."""
    rows = [*parts[f"gpu{one}"]["rows"], *parts[f"cpu{one}"]["rows"]]
    truth: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for row in (*parts[f"gpu{other}"]["rows"], *parts[f"cpu{other}"]["rows"]):
        if row["mode"] == "train" and row["step_s"]:
            times = truth[row["model"], row["batch"]]
            times[row["device"]] = min(row["step_s"], times.get(row["device"], row["step_s"]))
    advice = advise([_measurement(row) for row in rows])
    choices = {
        (choice.model, choice.batch_rows): choice
        for choice in advice.choices
        if choice.mode == "train" and len(truth[choice.model, choice.batch_rows]) == 2
    }
    regrets = {
        cell: truth[cell][choice.device] / min(truth[cell].values()) - 1
        for cell, choice in choices.items()
    }
    wrong = {f"{model}/{batch}": round(far, 4) for (model, batch), far in regrets.items() if far}
    return {
        "advice_of": one,
        "judged_by": other,
        "cells": len(regrets),
        "right": len(regrets) - len(wrong),
        "share": round(1 - len(wrong) / max(1, len(regrets)), 4),
        "worst_regret": round(max(regrets.values(), default=0.0), 4),
        "wrong": wrong,
        "cpu_is_faster": sum(
            min(truth[cell], key=truth[cell].__getitem__) == "cpu" for cell in regrets
        ),
        "named_captured": sum(choice.form == "captured" for choice in choices.values()),
        "undecided": [
            f"{model}/{batch}" for (model, batch), one in choices.items() if one.undecided
        ],
        "words": advice.words,
    }


def _measurement(row: Json) -> Measurement:
    work = Work(
        suite=row["suite"],
        model=row["model"],
        num_parameters=row["parameters"],
        num_samples=0,
        batch_rows=row["batch"],
        data="",
        target_steps=0,
    )
    names = ("mode", "form", "device", "step_s", "low_s", "high_s", "p99_s", "failure")
    return Measurement(work=work, flags=tuple(row["flags"]), **{name: row[name] for name in names})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", default="", metavar="LIST", help=", ".join(PARTS))
    parser.add_argument("--report", action="store_true", help="from the parts that are there")
    parser.add_argument("--gpu", default="cuda:0", metavar="DEVICE")
    parser.add_argument("--batch", default="32,1024", help="of the processor's training")
    parser.add_argument("--most", type=int, default=7_000_000, metavar="PARAMETERS")
    parser.add_argument("--seconds", type=float, default=565.0, help="a part takes at most")
    parser.add_argument("--out", type=Path, default=HERE / "results", metavar="FOLDER")
    parser.add_argument("--more", default=[], type=str.split, help="options of the GPU's bench")
    args = parser.parse_args()
    names = [name for name in args.part.split(",") if name]
    if not names and not args.report:
        parser.error(f"give --part, one or several of {', '.join(PARTS)}, or --report")
    for name in names:
        if name not in PARTS:
            parser.error(f"{name} is none of {', '.join(PARTS)}")
        found = evaluated(name, args)
        args.out.mkdir(parents=True, exist_ok=True)
        rows = ",\n".join(json.dumps(row) for row in found.pop("rows"))
        head = json.dumps(found, indent=1)[:-2]
        (args.out / f"evaluation-{name}.json").write_text(f'{head},\n "rows": [\n{rows}\n ]\n}}\n')
    paths = {name: args.out / f"evaluation-{name}.json" for name in PARTS}
    parts = {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}
    print(json.dumps(report(parts), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
