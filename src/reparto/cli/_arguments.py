"""What the commands that take a script have in common on the command line."""

from __future__ import annotations

import argparse
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reparto.spec import Job, Options


def new_parser(subparsers: Any, name: str, summary: str, example: str) -> argparse.ArgumentParser:
    """Add a command's parser, with its example at the end of its help."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=f"example:\n{example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    return parser


def add_script(parser: argparse.ArgumentParser) -> None:
    """Add SCRIPT and, after it, the script's own arguments."""
    parser.add_argument("script", metavar="SCRIPT", help="the training script, unmodified")
    rest = parser.add_argument(
        "script_args",
        metavar="ARGS",
        nargs=argparse.REMAINDER,
        help="all that follows belongs to the script",
    )
    rest.required = False  # or argparse names it beside a missing SCRIPT


def add_engine(parser: argparse.ArgumentParser, kinds: str = "local (default) or ray") -> None:
    """Add ``--engine``, ``--address`` and ``--ship``: where the workers run.

    Args:
        parser: Of the command.
        kinds: The engines that it runs on, in words.
    """
    add = parser.add_argument
    add("--engine", default="local", metavar="KIND", help=kinds)
    add(
        "--address",
        default="",
        metavar="ADDRESS",
        help="of the engine's cluster; ray: auto, HOST:PORT or ray://HOST:PORT",
    )
    add(
        "--ship",
        action="append",
        default=[],
        metavar="PATH",
        help="a file or folder that travels to hosts that lack it; may be repeated",
    )


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """Add ``--hosts``: workers of the local engine on hosts that a command enters."""
    parser.add_argument(
        "--hosts",
        metavar="hosts.toml",
        help="hosts that a command enters from here, such as network namespaces",
    )


def add_strategy(parser: argparse.ArgumentParser) -> None:
    """Add ``--strategy`` and ``--set``: how workers agree."""
    add = parser.add_argument
    add(
        "--strategy",
        default="all-reduce",
        metavar="KIND",
        help="all-reduce (default), single (one worker, the script as it is), another of "
        "`reparto strategies`, or auto: measure first, then take what is fastest",
    )
    add(
        "--set",
        type=setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="a setting of the strategy; may be repeated",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add ``--json FILE``."""
    parser.add_argument(
        "--json", metavar="FILE", help="write what was found as JSON; - is standard output"
    )


def own_args(args: argparse.Namespace) -> tuple[str, ...]:
    """The script's own arguments, without a separating ``--`` before them."""
    given = list(args.script_args)
    return tuple(given[1:] if given[:1] == ["--"] else given)


def job_of(args: argparse.Namespace, options: Options, **more: Any) -> Job:
    """The job that the arguments describe: script, engine, workers; and what else is given."""
    from reparto.spec import Job

    return Job(
        script=args.script,
        args=own_args(args),
        workers=args.workers,
        engine=args.engine,
        address=args.address,
        ship=tuple(args.ship),
        threads=args.threads,
        relaxed=args.relaxed,
        options=options,
        **more,
    )


def count(text: str) -> int:
    """Parse a number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return number


def loss(text: str) -> float:
    """Parse a loss that can be reached."""
    number = float(text)
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text} is no loss to be reached")
    return number


def setting(text: str) -> tuple[str, Any]:
    """Parse ``key=value``; the value as JSON where it is, else as it stands."""
    import json

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form key=value")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value
