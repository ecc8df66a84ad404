"""BenchScreen: what people see while cells are measured, on standard error."""

from __future__ import annotations

import shutil
import time
from typing import TextIO

from reparto.bench import Cell, Watcher
from reparto.cli._style import Style, duration
from reparto.spec import Measurement

PLAIN_EVERY_S = 10.0
_CLEAR = "\r\033[K"


class BenchScreen(Watcher):
    """A live line on a terminal, a plain one now and then elsewhere; failures stay.

    Args:
        stream: Where it goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._style = stream, Style(stream)
        self._live = stream.isatty()
        self._began_s = time.monotonic()
        self._next_s = self._began_s + PLAIN_EVERY_S
        self._place, self._title = "", ""
        self._left_s: float | None = None

    def begins(self, cell: Cell, number: int, planned: int) -> None:
        """Say which one, and how long the others will take."""
        self._place, self._title = f"{number} of {planned}", cell.title
        left = "" if self._left_s is None else f" · about {duration(self._left_s)} left"
        line = f"{self._place}{left} · {cell.title}"
        now = time.monotonic()
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"{_CLEAR}{line[:width]}")
            self._stream.flush()
        elif now >= self._next_s:
            self._next_s = now + PLAIN_EVERY_S
            self._say(line)

    def ended(self, row: Measurement, left_s: float | None) -> None:
        """Keep what failed in sight."""
        self._left_s = left_s
        if row.failure:
            self._say(f"{self._style('yellow', 'failed')} {self._title}: {row.failure}")

    def kept(self, count: int) -> None:
        """Say how much is there already."""
        self._say(f"{count} cells were measured before")

    def remark(self, text: str) -> None:
        """Say it."""
        self._say(text)

    def clear(self) -> None:
        """Take the live line away."""
        if self._live:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _say(self, text: str) -> None:
        self.clear()
        self._stream.write(f"{text}\n")
        self._stream.flush()
