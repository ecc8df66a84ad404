"""Reads the fenced blocks of a Markdown page, those inside of lists too."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^( *)```(\S*)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"# file: (\S+)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    Attributes:
        kind: The first word after the fence: ``console``, ``python``.
        info: The words after it.
        text: What it holds.
        line: Where it begins.
    """

    kind: str
    info: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command of a ``console`` block, what it is shown to print, and its exit status."""

    line: str
    output: tuple[str, ...]
    status: int


def blocks(page):
    text = page.read_text()
    return [
        Block(kind, info.strip(), textwrap.dedent(body), text.count("\n", 0, match.start()) + 1)
        for match in _FENCE.finditer(text)
        for _, kind, info, body in [match.groups()]
    ]


def files(page):
    """The files that a page shows: blocks whose first line is ``# file: NAME``."""
    named = [(_FILE.match(block.text), block.text) for block in blocks(page)]
    return {match.group(1): text[match.end() :] for match, text in named if match}


def commands(block):
    """The commands of a ``console`` block; ``exits 3`` after the fence tells the last's status."""
    match = re.search(r"exits (\d+)", block.info)
    status = int(match.group(1)) if match else 0
    found = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            found.append([line[2:]])
        elif found:
            found[-1].append(line)
    return [
        Command(line, tuple(output), status if number == len(found) else 0)
        for number, (line, *output) in enumerate(found, 1)
    ]


def pages():
    return [
        ROOT / "README.md",
        ROOT / "examples" / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
