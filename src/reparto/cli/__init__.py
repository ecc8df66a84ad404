"""The command ``reparto``: a table of commands, each in a file of its own, imported when called.

A command's file has ``add_parser(subparsers)`` and ``command(args) -> int``. It only parses, calls
one function of `api`, and prints. To add one: a file, and a line in the table.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from reparto._version import __version__
from reparto.errors import RepartoError

#: Name, then what ``reparto --help`` says; the file is ``cli/_name.py``, with ``_`` for ``-``.
COMMANDS = {
    "run": "train a script, shared out over workers",
    "convert": "show the distributed program that a script becomes",
    "verify": "prove that the shared-out training equals the sequential one",
    "plan": "measure a script and the hosts, and predict what every strategy would take",
    "simulate": "predict what every strategy would take on hosts that are not there",
    "compare": "run several strategies, one after the other, and draw how they did",
    "fit-batch": "find the largest batch that fits each device",
    "bench": "time a model, its training and inference, on each device",
    "search": "find the best technique and settings for a table, within a budget",
    "predict": "ask a model that a search has found",
    "lab": "play a network of machines on this one, and run scripts on it",
    "stop": "end a run after a step, with a checkpoint",
    "strategies": "list how workers can agree, and what can be set",
    "doctor": "tell what this machine and its network offer",
}

EXIT_INTERRUPTED = 130
#: Under that name the parser of each command is kept.
COMMANDS_DEST = "command_name"

_EPILOG = """\
examples:
  reparto run train.py --epochs 3              on all cores or GPUs of this machine
  reparto verify --steps 20 train.py           is it still the same training?
  reparto convert --diff train.py              what would be changed, and why
  reparto plan train.py                        how long would it take, and on how many workers?
  reparto search houses.csv --target price     which model for this table?

exit status: 0 good · 1 failed or outside tolerance · 2 bad usage · 3 refused
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the console script ``reparto``.

    Args:
        argv: The arguments; those of the process if not given.

    Returns:
        The exit status.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(arguments)
    args = parser.parse_args(_in_order(parser, arguments))
    if not hasattr(args, "command"):
        parser.print_help()
        return 2
    # A request to end is handled like Ctrl-C: no worker is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status: int = args.command(args)
        return status
    except RepartoError as error:
        print(f"reparto: error {error.code}: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # `reparto … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _in_order(parser: argparse.ArgumentParser, arguments: list[str]) -> list[str]:
    """The same with options of reparto before the script, not behind it."""
    from reparto.cli._behind import brought_forward

    name = _called(arguments)
    commands = next(one.choices for one in parser._actions if one.dest == COMMANDS_DEST)
    if name not in COMMANDS or not isinstance(commands, dict):
        return arguments
    place = arguments.index(name) + 1
    found, note = brought_forward(commands[name], arguments[place:])
    if note:
        print(f"note: {note}", file=sys.stderr)
    return [*arguments[:place], *found]


def _called(arguments: Sequence[str]) -> str:
    return next((word for word in arguments if not word.startswith("-")), "")


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reparto",
        description="Shares out an unmodified PyTorch training script over the machines you have.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"reparto {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", dest=COMMANDS_DEST)
    called = _called(arguments)
    for name, summary in COMMANDS.items():
        if name == called:
            module = import_module(f"reparto.cli._{name.replace('-', '_')}")
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    return parser
