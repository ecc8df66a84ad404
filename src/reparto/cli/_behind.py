"""Options of reparto that stand behind the script, where they cannot be the script's own."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

#: So many files beside the script are read, to see whether they speak of an option.
_MOST_FILES, _MOST_BYTES = 100, 1 << 20
#: A script with one of these takes options whose names need not stand in it.
_TAKES_ANY = re.compile(
    r"\b(argv|parse_known_args|HfArgumentParser|LightningCLI|jsonargparse|simple_parsing|fire|tyro"
    r"|hydra|absl)\b"
)


def brought_forward(
    parser: argparse.ArgumentParser, arguments: Sequence[str]
) -> tuple[list[str], str]:
    """Put options that a command knows, and the script does not mention, before the script.

    What stands behind a script belongs to it. But ``reparto plan train.py --workers 1,2`` is what
    people type, and a script without the word ``workers`` has no such option. Behind a ``--``
    everything is the script's.

    Args:
        parser: Of the command.
        arguments: Of the command.

    Returns:
        The arguments in the order that the parser wants, and a note for people, which is empty if
        nothing was moved.
    """
    args = _parsed(parser, arguments)
    rest = list(getattr(args, "script_args", None) or ())
    script = Path(getattr(args, "script", None) or getattr(args, "target", None) or "")
    head = list(arguments[: len(arguments) - len(rest)])
    # Which side of it a -- between both is on depends on the version of argparse.
    if not rest or "--" in (rest[0], head[-1]) or not script.is_file():
        return list(arguments), ""
    moved, kept = _sorted_out(parser, rest, script)
    if not moved:
        return list(arguments), ""
    told = (
        f"{' '.join(moved)} stands behind {script.name}, which does not mention it: "
        "taken as reparto's (all that follows a -- is the script's)"
    )
    return [*head[:-1], *moved, head[-1], *kept], told


def _parsed(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """As if no option were required: it may stand behind the script."""
    required = [one for one in parser._actions if one.required and one.option_strings]
    for one in required:
        one.required = False
    try:
        return parser.parse_known_args(list(arguments))[0]
    finally:
        for one in required:
            one.required = True


def _sorted_out(
    parser: argparse.ArgumentParser, rest: Sequence[str], script: Path
) -> tuple[list[str], list[str]]:
    """What is reparto's, and what is the script's."""
    moved: list[str] = []
    kept: list[str] = []
    source: str | None = None
    place = 0
    while place < len(rest):
        word = rest[place]
        name, equals, _ = word.partition("=")
        action = parser._option_string_actions.get(name) if name.startswith("--") else None
        if word == "--":
            return moved, [*kept, *rest[place:]]
        takes = 1 if action is None or action.nargs == 0 or equals else 2
        if action is not None and action.dest != "help" and place + takes <= len(rest):
            source = _source(script) if source is None else source
            if not _mentions(source, name):
                moved += rest[place : place + takes]
                place += takes
                continue
        kept.append(word)
        place += 1
    return moved, kept


def _mentions(source: str, option: str) -> bool:
    if _TAKES_ANY.search(source):
        return True
    words = re.split("[-_]", option.removeprefix("--"))
    return re.search(rf"(?<![a-z]){'[-_]?'.join(words)}(?![a-z])", source, re.I) is not None


def _source(script: Path) -> str:
    """Of the script, and of what lies beside it."""
    files = [script, *sorted(script.parent.glob("*.py"))[:_MOST_FILES]]
    texts, left = [], _MOST_BYTES
    for path in dict.fromkeys(files):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")[:left]
        except OSError:
            continue
        texts.append(text)
        left -= len(text)
    return "\n".join(texts)
