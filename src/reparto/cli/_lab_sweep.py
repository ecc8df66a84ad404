"""``reparto lab sweep``: every number of nodes, rate and strategy, drawn."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from reparto.cli import EXIT_INTERRUPTED
from reparto.cli._arguments import add_json, add_script, count, job_of, loss

if TYPE_CHECKING:
    from reparto.spec import LabSweep
    from reparto.sweep import LabRequest

EXAMPLE = """\
  reparto lab sweep --nodes 1,2,4 --rates 10mbit,100mbit,none --cpu 0.45 --target 0.3 train.py
  reparto lab sweep --strategies all-reduce,diloco:sync_every=4 --relaxed --at-most 10m train.py\
"""
SUMMARY = "run a script on labs of several sizes and rates, and draw where it pays"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments; those of hosts are added by `_lab`."""
    add = parser.add_argument
    add("--nodes", type=_counts, default=(1, 2, 4), metavar="LIST", help="default: 1,2,4")
    add(
        "--rates",
        default="10mbit,100mbit,1gbit,none",
        metavar="LIST",
        help="of each host's line, each way; default: 10mbit,100mbit,1gbit,none",
    )
    add(
        "--strategies",
        default="all-reduce",
        metavar="LIST",
        help="KIND or KIND:key=value:key=value, with commas between them; default: all-reduce",
    )
    add("--relaxed", action="store_true", help="allow strategies that change the mathematics")
    add("--target", type=loss, metavar="LOSS", help="end a run once its smoothed loss is as low")
    add("--samples", type=count, metavar="N", help="end a run after that many samples")
    add("--at-most", metavar="TIME", help="end a run that takes longer, as 10m or 90s")
    add("--seed", type=int, default=0, metavar="S", help="for scripts that set none (default: 0)")
    add("--threads", type=count, metavar="T", help="of each node; default: as its cores, or 1")
    add(
        "--out",
        default="reparto-lab",
        metavar="FOLDER",
        help="for the page, the pictures, the numbers; a sweep into the same folder goes on "
        "where an earlier one was broken off (default: reparto-lab)",
    )
    add_json(parser)
    add_script(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Sweep, print the table, and write the rest."""
    from reparto import sweep
    from reparto.cli._lab_screen import LabScreen
    from reparto.cli._output import unless_empty
    from reparto.errors import RepartoError
    from reparto.spec import finite, to_plain

    folder = Path(args.out)
    with unless_empty(folder):
        request = _request(args)
        sweep.prepare(folder)
        screen = LabScreen(len(request.places()), folder / "output", json_target=args.json)
        try:
            found = sweep.sweep_lab(request, folder, screen)
        except RepartoError as error:
            screen.write_error(error)
            raise
    screen.out("\n" + "\n".join(sweep.text_table(found)) + "\n")
    if found.labels:
        for path in sweep.write_lab(found, folder):
            print(f"wrote {os.path.relpath(path)}", file=sys.stderr)
    status = _status(found)
    screen.write_json(status=status, sweep=finite(to_plain(found)))
    return {"done": 0, "failed": 1, "stopped": EXIT_INTERRUPTED}[status]


def _request(args: argparse.Namespace) -> LabRequest:
    from reparto import sweep
    from reparto.lab import parse_rate, parse_time
    from reparto.spec import Options

    args.workers, args.engine, args.address, args.ship = None, "local", "", []
    keys = ("cpu", "memory", "delay", "jitter", "loss")
    return sweep.LabRequest(
        job=job_of(args, Options(samples=args.samples, seed=args.seed)),
        entries=sweep.parse_entries(args.strategies),
        nodes=args.nodes,
        rates=tuple(parse_rate(one.strip(), "--rates") for one in args.rates.split(",")),
        of_host={key: getattr(args, key) for key in keys},
        target=args.target,
        emulate=args.emulate,
        at_most_s=None if args.at_most is None else parse_time(args.at_most, "--at-most"),
    )


def _status(found: LabSweep) -> str:
    """The worst end that a run has come to; to be late is no failure."""
    ends = {cell.run.status for cell in found.cells if not cell.is_late}
    return next((end for end in ("stopped", "failed") if end in ends), "done")


def _counts(text: str) -> tuple[int, ...]:
    return tuple(count(part.strip()) for part in text.split(","))
