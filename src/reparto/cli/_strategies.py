"""``reparto strategies``: how workers can agree, and what can be set."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS
from reparto.cli._arguments import add_json, new_parser

if TYPE_CHECKING:
    from reparto.strategies import Description

_EXAMPLE = """\
  reparto strategies
  reparto strategies show diloco
  reparto strategies show quantize         a compressor
  reparto run --strategy diloco --set sync_every=64 --set compressor.kind=quantize \\
      --relaxed train.py\
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "strategies", COMMANDS["strategies"], _EXAMPLE)
    parser.add_argument("action", nargs="?", choices=["list", "show"], default="list")
    parser.add_argument("kind", nargs="?", metavar="KIND", help="whose settings are shown")
    add_json(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """List all, or show one."""
    import sys

    from reparto.cli._output import write_json
    from reparto.cli._style import Style, columns
    from reparto.errors import UsageError
    from reparto.spec import to_plain
    from reparto.strategies import available, compressors, describe

    known: dict[str, Any] = {**available(), **compressors.available()}
    if args.action == "list":
        if args.kind is not None:
            raise UsageError("list takes no name", remedy=f"reparto strategies show {args.kind}")
        found = [describe(config) for config in known.values()]
        if args.json != "-":
            style = Style(sys.stdout)
            print(style("bold", "strategies"))
            print("\n".join(columns([_row(one) for one in found if not one.is_compressor])))
            print(style("bold", "compressors"), "(--set compressor.kind=KIND)")
            print("\n".join(columns([_row(one) for one in found if one.is_compressor])))
        write_json(args.json, [to_plain(one) for one in found])
        return 0
    if args.kind not in known:
        raise UsageError(
            f"unknown strategy {args.kind!r}" if args.kind else "show which one?",
            remedy=f"choose one of {', '.join(known)}",
        )
    description = describe(known[args.kind])
    if args.json != "-":
        _show(description, Style(sys.stdout))
    write_json(args.json, to_plain(description))
    return 0


def _row(one: Description) -> tuple[str, str, str]:
    return one.kind, "exact" if one.exact else "relaxed", one.summary


def _show(one: Description, style: Any) -> None:
    from reparto.cli._style import columns

    print(style("bold", one.kind), "·", one.summary)
    rows = [("sends", one.formula)] if one.formula else []
    if one.exact:
        rows.append(("exact", "the training is the sequential one"))
    elif one.changes:
        rows.append(("relaxed", one.changes))
    if one.paper:
        rows.append(("paper", one.paper))
    print("\n".join(columns(rows)))
    prefix = "compressor." if one.is_compressor else ""
    for knob in one.knobs:
        print(f"  --set {prefix}{knob.name}={knob.default}  ({knob.type})")
        print(textwrap.indent(textwrap.fill(knob.meaning, 88), "      "))
