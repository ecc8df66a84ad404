"""Colours and columns for terminals; plain text everywhere else."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import IO

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Style:
    """Marks up text for a stream, if that is a terminal that wants colours.

    Args:
        stream: Where the text will go.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._on = stream.isatty() and "NO_COLOR" not in os.environ

    def __call__(self, how: str, text: str) -> str:
        """Return the text, marked up."""
        return f"\033[{_CODES[how]}m{text}\033[0m" if self._on else text


def columns(rows: Sequence[Sequence[str]], *, indent: str = "  ") -> list[str]:
    """Set rows of cells in columns, as wide as their widest cell; the last may be any length."""
    num_columns = max((len(row) for row in rows), default=0)
    widths = [
        max((len(row[index]) for row in rows if index < len(row) - 1), default=0)
        for index in range(num_columns)
    ]
    return [
        indent
        + "  ".join(
            cell if index == len(row) - 1 else cell.ljust(widths[index])
            for index, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]


def duration(seconds: float) -> str:
    """Write a duration as people read it: ``0.4 s``, ``12 s``, ``3:05``, ``1:02:45``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def quantity(number: float) -> str:
    """Write a number with at most four figures, thousands apart."""
    if number >= 100:
        return f"{number:,.0f}".replace(",", " ")
    return f"{number:.3g}"
