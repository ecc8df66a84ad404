"""Busy: for how long somebody has worked on a task, the waits for replies left out."""

from __future__ import annotations

import time


class Busy:
    """A watch that stands still until a task begins, and while a reply is waited for."""

    def __init__(self) -> None:
        self._before_s, self.is_paused = 0.0, False
        self._since: float | None = None

    def begin(self) -> None:
        """A task begins."""
        self._before_s, self._since, self.is_paused = 0.0, time.monotonic(), False

    def pause(self) -> None:
        """A reply is waited for."""
        self._before_s, self._since, self.is_paused = self.seconds(), None, True

    def resume(self) -> None:
        """It has come."""
        self._since, self.is_paused = time.monotonic(), False

    def end(self) -> None:
        """The task is over, and its seconds are told."""
        self._before_s, self._since, self.is_paused = 0.0, None, False

    def seconds(self) -> float:
        """Of this task until now; 0 if there is none."""
        since_s = 0.0 if self._since is None else time.monotonic() - self._since
        return self._before_s + since_s
