"""``reparto compare``: strategies side by side, as a table, a picture and a page."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS, EXIT_INTERRUPTED
from reparto.cli._arguments import (
    add_engine,
    add_json,
    add_script,
    count,
    job_of,
    loss,
    new_parser,
)

if TYPE_CHECKING:
    from reparto.spec import Comparison
    from reparto.sweep import Request

_EXAMPLE = """\
  reparto compare --workers 2 train.py --epochs 3
  reparto compare --strategies single,all-reduce,local-sgd:sync_every=8 --relaxed \\
      --workers 4 --target 0.3 train.py\
"""
_WORDS = (0, 2, 10)  # columns that hold words stand to the left, numbers to the right


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "compare", COMMANDS["compare"], _EXAMPLE)
    add = parser.add_argument
    add(
        "--strategies",
        metavar="LIST",
        help="KIND or KIND:key=value:key=value, with commas between them; default: every exact "
        "one, with --relaxed every one",
    )
    add("--relaxed", action="store_true", help="allow strategies that change the mathematics")
    add("--workers", type=count, metavar="N", help="default: all cores, or all GPUs")
    add(
        "--target",
        type=loss,
        metavar="LOSS",
        help="end a run once its training loss, smoothed, is as low",
    )
    add("--samples", type=count, metavar="N", help="end a run after that many samples")
    add("--seed", type=int, default=0, metavar="S", help="for scripts that set none (default: 0)")
    add("--threads", type=count, metavar="T", help="of each worker; default: cores / workers")
    add_engine(parser)
    add(
        "--out",
        default="reparto-compare",
        metavar="FOLDER",
        help="for the page, the picture, the numbers, and what scripts print "
        "(default: reparto-compare)",
    )
    add_json(parser)
    add_script(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Run what is to be compared, print the table, and write the rest."""
    from reparto import sweep
    from reparto.cli._output import unless_empty
    from reparto.cli._side_by_side import SideBySide
    from reparto.errors import RepartoError
    from reparto.spec import finite, to_plain

    folder = Path(args.out)
    with unless_empty(folder):
        request = _request(args)
        sweep.prepare(folder)
        screen = SideBySide(len(request.entries), folder / "output", json_target=args.json)
        try:
            comparison = sweep.compare(request, screen)
        except RepartoError as error:
            screen.write_error(error)
            raise
    screen.out(report(comparison))
    for path in sweep.write(comparison, folder):
        print(f"wrote {os.path.relpath(path)}", file=sys.stderr)
    status = _status(comparison)
    screen.write_json(status=status, comparison=finite(to_plain(comparison)))
    return {"done": 0, "failed": 1, "stopped": EXIT_INTERRUPTED}[status]


def report(comparison: Comparison) -> str:
    """The comparison as a table, and in words."""
    from reparto import sweep

    lines = ["", *sweep.aligned([sweep.header(), *sweep.rows(comparison)], _WORDS)]
    target = comparison.target
    to = f", to a loss of {target:g}" if target is not None else ""
    lines.append(f"  time, samples, sent, steps: in all{to}; sent, waiting: of a worker")
    if words := sweep.in_words(comparison):
        lines.append(words)
    return "\n".join(lines) + "\n"


def _request(args: argparse.Namespace) -> Request:
    from reparto import sweep
    from reparto.spec import Options

    if args.strategies is None:
        entries = sweep.every_entry(relaxed=args.relaxed)
    else:
        entries = sweep.parse_entries(args.strategies)
    job = job_of(args, Options(samples=args.samples, seed=args.seed))
    return sweep.Request(job=job, entries=entries, target=args.target)


def _status(comparison: Comparison) -> str:
    """The worst end that a run has come to."""
    ends = {run.status for run in comparison.runs}
    return next((end for end in ("stopped", "failed") if end in ends), "done")
