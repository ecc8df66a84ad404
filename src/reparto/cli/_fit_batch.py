"""``reparto fit-batch``: the largest batch that fits each device."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS
from reparto.cli._arguments import add_engine, add_json, add_script, count, own_args

if TYPE_CHECKING:
    from reparto.spec import DeviceFit, FitResult

_EXAMPLE = """\
  reparto fit-batch train.py --epochs 3
  reparto fit-batch --memory 2GiB train.py           as if there were no more than that
  reparto fit-batch --vary batch-size train.py       its own option --batch-size sets the batch\
"""
_STATUS = {
    "confirmed": "tried",
    "unlimited": "tried; more may fit",
    "unconfirmed": "predicted, not tried",
}


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    from reparto.cli._arguments import new_parser

    parser = new_parser(subparsers, "fit-batch", COMMANDS["fit-batch"], _EXAMPLE)
    parser.description = (
        "Finds the largest batch that fits each device: two short runs tell what memory a row "
        "takes, a third confirms what follows from it. A size that does not fit is a finding, "
        "not a crash. There is one answer for each host, on this machine for each kind of GPU; "
        "with --engine ray a host's GPUs are taken to be alike."
    )
    add = parser.add_argument
    add(
        "--vary",
        metavar="NAME",
        default="",
        help="the script's own option whose number is the batch: batch-size means --batch-size, "
        "batch_size= is for scripts that take it so, =-b stands for -b; default: training "
        "DataLoaders are told",
    )
    add(
        "--memory",
        metavar="SIZE",
        help="that one worker may have: 2GiB; default: what is free, of a container too",
    )
    add("--threads", type=count, metavar="T", help="of the worker; default: as plain Python")
    add_engine(parser)
    add_json(parser)
    add_script(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Find the batch, and print it."""
    from reparto import sweep
    from reparto.cli._fit_screen import FitScreen
    from reparto.errors import RepartoError, UsageError
    from reparto.spec import Job, parse_size, to_plain

    screen = FitScreen(json_target=args.json)
    try:
        memory_bytes = parse_size(args.memory, "--memory") if args.memory is not None else 0
        if args.memory is not None and memory_bytes < 1:
            raise UsageError("--memory: nothing fits into nothing", remedy="give 2GiB")
        job = Job(
            script=args.script,
            args=own_args(args),
            engine=args.engine,
            address=args.address,
            ship=tuple(args.ship),
            threads=args.threads,
        )
        result = sweep.fit_batch(
            job, vary=option_name(args.vary), memory_bytes=memory_bytes, watcher=screen
        )
    except RepartoError as error:
        screen.clear()
        screen.write_error(error)
        raise
    fits = all(device.rows for device in result.devices)
    screen.out(report(result))
    screen.write_json(status="done" if fits else "failed", fit=to_plain(result))
    return 0 if fits else 1


def option_name(text: str) -> str:
    """The script's option, as the script reads it."""
    is_bare = bool(text) and not text.startswith("-") and not text.endswith("=")
    return f"--{text}" if is_bare else text


def report(result: FitResult) -> str:
    """The answers as a table, and in words."""
    from reparto.cli._style import columns

    header = ("device", "rows now", "peak now", "largest", "predicted", "measured", "limit", "")
    lines = columns([header, *map(_row, result.devices)])
    for device in result.devices:
        named = f"{device.device} of {device.host}: " if len(result.devices) > 1 else ""
        lines += [f"  note: {named}{note}" for note in device.notes]
    if result.vary:
        lines.append(f"  rows: the number of {result.vary}")
    lines.append(f"  {result.margin:.0%} of the limit are left free; memory is that of one worker")
    return "\n".join(lines) + "\n"


def _row(device: DeviceFit) -> tuple[str, ...]:
    return (
        f"{device.device} · {device.host}",
        str(device.rows_now or "?"),
        size_text(device.peak_now_bytes) if device.peak_now_bytes else "does not fit",
        str(device.rows),
        size_text(device.predicted_bytes),
        size_text(device.peak_bytes),
        size_text(device.limit_bytes),
        _STATUS[device.status] if device.rows else "nothing fits",
    )


def size_text(num_bytes: int) -> str:
    """A size as people read it: ``812 MiB``, ``13.4 GiB``; ``-`` for none."""
    if num_bytes <= 0:
        return "-"
    if num_bytes < 1 << 30:
        return f"{num_bytes / 2**20:.0f} MiB"
    return f"{num_bytes / 2**30:.2f} GiB"
