"""``reparto convert``: the distributed program as source, its diff, and the diagnostics."""

from __future__ import annotations

import argparse
import os
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reparto.cli import COMMANDS
from reparto.cli._arguments import add_json, add_script, new_parser, own_args

if TYPE_CHECKING:
    from reparto.spec import Program, SourceFile

_EXAMPLE = """\
  reparto convert train.py > train_shared.py
  reparto convert --diff train.py
  reparto convert -o shared/ train.py      all files of a program that has several\
"""


def add_parser(subparsers: Any) -> None:
    """Add the command's arguments."""
    parser = new_parser(subparsers, "convert", COMMANDS["convert"], _EXAMPLE)
    parser.add_argument(
        "-o", "--output", metavar="FILE|DIR", help="write there; a folder takes all files"
    )
    parser.add_argument("--diff", action="store_true", help="show only what changes")
    add_json(parser)
    add_script(parser)
    parser.set_defaults(command=command)


def command(args: argparse.Namespace) -> int:
    """Convert the script and show or write the result."""
    from reparto import api
    from reparto.cli._screen import Screen
    from reparto.convert import Refused, diff
    from reparto.errors import RefusedError
    from reparto.spec import to_plain

    screen = Screen(json_target=args.json)
    result = api.convert(args.script, own_args(args))
    screen.found(result)
    screen.write_json(
        status=type(result).__name__.lower(),
        reason=getattr(result, "reason", ""),
        files=[to_plain(file) for file in result.program.files],
    )
    if isinstance(result, Refused):
        raise RefusedError(f"{args.script} cannot be shared out exactly")
    if args.diff:
        screen.out(diff(result.program))
    if args.output:
        for path in _write(result.program, args.output):
            print(f"wrote {path}", file=sys.stderr)
    elif not args.diff and args.json != "-":
        screen.out(result.program.files[0].converted)
    return 0


def _by_module(file: SourceFile) -> str:
    """Where a file that lies elsewhere is found when it is imported from the script's folder."""
    parts = file.module.split(".")
    if os.path.basename(file.path) == "__init__.py":
        parts.append("__init__")
    return os.path.join(*parts) + ".py"


def _write(program: Program, output: str) -> list[Path]:
    """Write the program's files: one by name, or all into a folder as they lie in theirs."""
    from reparto.errors import UsageError

    changed = [file for file in program.files[1:] if file.changed]
    target = Path(output)
    as_folder = output.endswith(os.sep) or target.is_dir() or (changed and not target.suffix)
    if changed and not as_folder:
        names = ", ".join(os.path.basename(file.path) for file in changed)
        raise UsageError(
            f"the program has other files that change too: {names}",
            remedy="give -o a folder, which takes all of them",
        )
    root = os.path.dirname(program.script)
    written = []
    for file in program.files if as_folder else program.files[:1]:
        name = os.path.relpath(file.path, root)
        if name.startswith(os.pardir):
            name = _by_module(file)
        path = target / name if as_folder else target
        if path.resolve() == Path(file.path).resolve():
            raise UsageError(f"{path} is the original", remedy="give -o another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(file.path, "rb") as original:
            encoding, _ = tokenize.detect_encoding(original.readline)
        path.write_text(file.converted, encoding=encoding)
        written.append(path)
    return written
