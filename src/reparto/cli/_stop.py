"""``reparto stop``: end a run that is under way, after a step, with a checkpoint."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS
from reparto.cli._arguments import add_json, new_parser

if TYPE_CHECKING:
    from reparto._runs import Running

_EXAMPLE = """\
  reparto stop                             the run on this machine, if there is one
  reparto stop train.py                    the run of that script
  reparto stop --list                      what is under way\
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "stop", COMMANDS["stop"], _EXAMPLE)
    add = parser.add_argument
    add("which", nargs="?", metavar="RUN", help="its script or process number; default: the one")
    add("--all", action="store_true", help="every run of yours on this machine")
    add("--now", action="store_true", help="do not wait for the end of a step")
    add("--list", action="store_true", help="tell what is under way, and stop nothing")
    add("--timeout", type=float, default=120.0, metavar="S", help="give up waiting after that")
    add_json(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Stop what was asked for, and wait until it has ended."""
    import time
    from dataclasses import asdict

    from reparto._runs import running
    from reparto.cli._output import write_json
    from reparto.cli._style import columns

    found = running()
    if args.list:
        if args.json != "-":
            print("\n".join(columns([_row(one) for one in found])) or "no run is under way")
        write_json(args.json, [asdict(one) for one in found])
        return 0
    chosen = _chosen(found, args.which, everything=args.all)
    for one in chosen:
        _ask(one, now=args.now)
    until = time.monotonic() + args.timeout
    ended = [_has_ended(one, until) for one in chosen]
    if args.json != "-":
        for one, has_ended in zip(chosen, ended, strict=True):
            print(f"{one.script} ({one.pid}): {'stopped' if has_ended else 'still running'}")
    told = [{**asdict(a), "stopped": b} for a, b in zip(chosen, ended, strict=True)]
    write_json(args.json, told)
    return 0 if all(ended) else 1


def _row(one: Running) -> tuple[str, str, str]:
    import time

    minutes = (time.time() - one.began_s) / 60
    return str(one.pid), f"{minutes:.0f} min", " ".join((one.script, *one.args))


def _chosen(found: list[Running], which: str | None, *, everything: bool) -> list[Running]:
    from pathlib import Path

    from reparto.errors import UsageError

    if not found:
        raise UsageError("no run of yours is under way on this machine")
    chosen = found
    if which is not None:
        names = {which, str(Path(which).absolute())}
        chosen = [
            one
            for one in found
            if names & {str(one.pid), one.script, str(Path(one.cwd, one.script))}
            or Path(one.script).name == which
        ]
    known = "; ".join(f"{one.pid} {one.script}" for one in found)
    if not chosen:
        raise UsageError(f"no run {which!r}", remedy=f"under way: {known}")
    if len(chosen) > 1 and not everything:
        raise UsageError("several runs are under way", remedy=f"name one, or --all: {known}")
    return chosen


def _ask(one: Running, *, now: bool) -> None:
    """Ask a run to end."""
    import contextlib
    import os
    import signal
    import time

    for _ in range(2 if now else 1):
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(one.pid, signal.SIGINT)
        time.sleep(0.3 if now else 0.0)  # signals that come together count as one


def _has_ended(one: Running, until: float) -> bool:
    """Wait for a run to end; whether it did."""
    import time

    from reparto._runs import is_running

    while is_running(one.pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True
