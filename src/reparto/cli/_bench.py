"""``reparto bench``: what a model costs on each device, as a table, files and words."""

from __future__ import annotations

import argparse
import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS, EXIT_INTERRUPTED
from reparto.cli._arguments import add_json, count, new_parser

if TYPE_CHECKING:
    from reparto.bench import Request
    from reparto.spec import BenchReport

_EXAMPLE = """\
  reparto bench --limit 20
  reparto bench grid --models 50,800-400-208 --batch 32,512 --advise
  reparto bench --devices cpu,cuda:0 --strategies all-reduce --workers 2 train.py --lr 0.1
  reparto bench --input 3,32,32 --deadline 100ms --infer models.py:Net\
"""
_STRICT = ("train", "infer")


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "bench", COMMANDS["bench"], _EXAMPLE)
    add = parser.add_argument
    add("--devices", type=_words, metavar="LIST", help="default: cpu, and cuda:0 if there is one")
    add("--batch", type=_counts, metavar="LIST", help="of training; default: 2,8,32,128,512,1024")
    add(
        "--calls",
        type=_counts,
        metavar="LIST",
        help="samples of inference calls; default: 1,2,64,512,1024",
    )
    add(
        "--dtype", type=_dtypes, default=("f32",), metavar="LIST", help="f32 (default), tf32, bf16"
    )
    add(
        "--forms",
        type=_forms,
        metavar="LIST",
        help="of training: plain, captured (GPUs); of inference: eager, compiled, exported, onnx",
    )
    add("--models", type=_words, default=(), metavar="LIST", help="of the grid, only these")
    add("--train", action="store_true", help="only training")
    add("--infer", action="store_true", help="only inference")
    add("--strategies", metavar="LIST", help="time these too, shared out over workers")
    add("--workers", type=_counts, default=(2,), metavar="LIST", help="of strategies; default: 2")
    add("--relaxed", action="store_true", help="allow strategies that change the mathematics")
    add("--accelerate", action="store_true", help="time a script as `run --accelerate` too")
    add("--input", type=_counts, default=(), metavar="SHAPE", help="of one sample, as 3,32,32")
    add("--steps", type=count, metavar="K", help="of a script; default: about three seconds of it")
    add("--limit", type=count, metavar="N", help="measure at most so many cells now")
    add("--deadline", metavar="TIME", help="for a call of inference, as 1s or 50ms")
    add("--advise", action="store_true", help="say which device to use, and from when it pays")
    add(
        "--price",
        action="append",
        default=[],
        metavar="LIST",
        help="of an hour: cpu=0.40/h,cuda:0=3/h",
    )
    add("--trace", metavar="FOLDER", help="trace a step of each model, and say what took the time")
    add(
        "--out",
        default="reparto-bench",
        metavar="FOLDER",
        help="for the rows, the table and the page; a second call goes on there "
        "(default: reparto-bench)",
    )
    add_json(parser)
    add(
        "target",
        nargs="?",
        default="grid,cnn",
        metavar="TARGET",
        help="grid, cnn, a script, or module:Model; default: grid,cnn",
    )
    add("script_args", metavar="ARGS", nargs=argparse.REMAINDER, help="belong to the script")
    parser.set_defaults(command=command, parser=parser)


def command(args: argparse.Namespace) -> int:
    """Measure, print the table, and write the rest."""
    from reparto import bench
    from reparto.cli._bench_screen import BenchScreen
    from reparto.cli._output import unless_empty, write_json
    from reparto.spec import finite, to_plain

    args = _all_options(args)
    folder = Path(args.out)
    screen = BenchScreen(sys.stderr)
    with unless_empty(folder):
        request, prices = _request(args), _prices(args.price)
        try:
            report = bench.evaluate(
                request, folder, screen, Path(args.trace) if args.trace else None
            )
        except KeyboardInterrupt:
            screen.remark(f"stopped; the same command goes on in {args.out}")
            return EXIT_INTERRUPTED
        finally:
            screen.clear()
    if args.advise or request.deadline_s is not None:
        advice = bench.advise(report.measurements, prices, request.deadline_s)
        report = dataclasses.replace(report, advice=advice)
    out = sys.stderr if args.json == "-" else sys.stdout
    print("\n".join(["", *bench.text_table(report), *_words_of(report)]), file=out)
    paths, remarks = bench.write_files(report, folder, request.deadline_s)
    for remark in remarks:
        screen.remark(remark)
    for path in paths:
        print(f"wrote {os.path.relpath(path)}", file=sys.stderr)
    write_json(args.json, finite(to_plain(report)))
    made = [row for row in report.measurements if not row.failure]
    return 0 if made else 1


def _words_of(report: BenchReport) -> list[str]:
    found = [*(report.advice.words if report.advice is not None else ())]
    found += [f"{cell}: {text}" for cell, texts in report.traces.items() for text in texts]
    return ["", *found] if found else []


def _all_options(args: argparse.Namespace) -> argparse.Namespace:
    """Take options behind a target too, where it is no script that could have some of its own."""
    behind = args.script_args
    if args.target.endswith(".py") or not behind:
        return args
    args.script_args = []
    parser: argparse.ArgumentParser = args.parser
    found = parser.parse_args([*behind, args.target], args)
    if found.script_args:
        parser.error(f"{found.target} is the second thing to be timed, after {args.target}")
    return found


def _request(args: argparse.Namespace) -> Request:
    from reparto import bench, sweep
    from reparto.bench._cells import BATCHES, CALLS, LOOPS, Entry
    from reparto.spec import parse_time

    targets = tuple(args.target.split(",")) if "," in args.target else (args.target,)
    given = sweep.parse_entries(args.strategies) if args.strategies else ()
    modes = tuple(mode for mode in _STRICT if getattr(args, mode)) or _STRICT
    loops = tuple(one for one in args.forms or () if one in LOOPS)
    forms = tuple(one for one in args.forms or () if one not in LOOPS)
    own = args.script_args[1:] if args.script_args[:1] == ["--"] else args.script_args
    return bench.Request(
        targets=targets,
        args=tuple(own),
        devices=args.devices or bench.devices_here(),
        batches=args.batch or BATCHES,
        calls=args.calls or CALLS,
        dtypes=args.dtype,
        modes=modes,  # type: ignore[arg-type]
        forms=forms or bench.forms_here(),
        cpu_only=() if forms else bench.cpu_only_forms(),
        loops=loops or LOOPS,
        models=args.models,
        entries=tuple(Entry(label=one.label, strategy=one.strategy) for one in given),
        workers=args.workers,
        relaxed=args.relaxed,
        accelerate=args.accelerate,
        limit=args.limit,
        deadline_s=None if args.deadline is None else parse_time(args.deadline, "--deadline"),
        input_shape=args.input,
        steps=args.steps,
    )


def _prices(texts: list[str]) -> dict[str, float]:
    from reparto.plan import parse_prices

    return parse_prices([part for text in texts for part in text.split(",")])


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _counts(text: str) -> tuple[int, ...]:
    return tuple(count(part) for part in _words(text))


def _dtypes(text: str) -> tuple[str, ...]:
    return _of(text, ("f32", "tf32", "bf16"))


def _forms(text: str) -> tuple[str, ...]:
    return _of(text, ("plain", "captured", "eager", "compiled", "exported", "onnx"))


def _of(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    for word in _words(text):
        if word not in known:
            raise argparse.ArgumentTypeError(f"{word} is none of {', '.join(known)}")
    return _words(text)
