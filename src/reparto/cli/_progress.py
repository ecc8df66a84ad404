"""The line that tells how training goes, below the script's own output and never within it."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from reparto.cli._style import duration, quantity
from reparto.spec import StepRecord

REDRAW_EVERY_S = 0.1
PLAIN_EVERY_S = 10.0

_CLEAR = "\r\033[K"


class Progress:
    """Passes the script's output on, and keeps a line about the run below it.

    On a terminal the line is live: cleared before the script writes, and drawn again when its
    output stands at the begin of a line (a progress bar of the script's own keeps its place). In
    a file or a pipe it is a plain line now and then.

    Args:
        stdout: Where the script's standard output goes.
        stderr: Where its standard error and our line go.
        title: What the line begins with.
    """

    def __init__(
        self, stdout: TextIO | None = None, stderr: TextIO | None = None, title: str = ""
    ) -> None:
        self._title = title
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self._live = self._stderr.isatty()
        self._drawn = False
        self._within_line = False
        self._next_s = 0.0
        self._begin_s = time.monotonic()
        self._first: StepRecord | None = None
        self._last: StepRecord | None = None
        self._num_workers = 1

    def begin(self) -> None:
        """The script begins: elapsed time counts from here."""
        self._begin_s = time.monotonic()
        self._next_s = self._begin_s + (0.0 if self._live else PLAIN_EVERY_S)

    def output(self, stream: str, data: bytes) -> None:
        """Pass on what the script wrote."""
        target = self._stdout if stream == "stdout" else self._stderr
        self.clear()
        target.flush()
        target.buffer.write(data)
        target.buffer.flush()
        if target.isatty() == self._live:  # the two meet on the same screen, or in the same log
            self._within_line = not data.endswith(b"\n")
        self._draw()

    def step(self, record: StepRecord, num_workers: int) -> None:
        """A step has ended."""
        if self._first is None:
            self._first = record
        self._last = record
        self._num_workers = num_workers
        self._draw()

    def say(self, text: str) -> None:
        """Print a line of our own."""
        self.clear()
        if self._within_line:
            self._stderr.write("\n")
            self._within_line = False
        self._stderr.write(text + "\n")
        self._stderr.flush()

    def clear(self) -> None:
        """Take the live line away."""
        if self._drawn:
            self._stderr.write(_CLEAR)
            self._stderr.flush()
            self._drawn = False

    def _draw(self) -> None:
        now = time.monotonic()
        if self._last is None or self._within_line or now < self._next_s:
            return
        if not self._live:
            self._next_s = now + PLAIN_EVERY_S
            self.say(f"reparto: {self._line(now)}")
            return
        self._next_s = now + REDRAW_EVERY_S
        width = shutil.get_terminal_size().columns - 1
        self._stderr.write(f"{_CLEAR}{self._line(now)[:width]}")
        self._stderr.flush()
        self._drawn = True

    def _line(self, now: float) -> str:
        assert self._last is not None and self._first is not None
        parts = [*([self._title] if self._title else []), f"step {self._last.step}"]
        elapsed = self._last.time_s - self._first.time_s
        num_steps = self._last.step - self._first.step
        if elapsed > 0 and self._last.samples:
            parts.append(f"{quantity(num_steps * self._last.samples / elapsed)} samples/s")
        if self._last.loss is not None:
            parts.append(f"loss {self._last.loss:.4g}")
        workers = "worker" if self._num_workers == 1 else "workers"
        parts += [f"{self._num_workers} {workers}", duration(now - self._begin_s)]
        return " · ".join(parts)
