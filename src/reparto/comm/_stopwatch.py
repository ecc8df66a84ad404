"""Stopwatch: how long somebody waited."""

from __future__ import annotations

import time
from types import TracebackType


class Stopwatch:
    """Adds up the seconds spent inside ``with``; inside of itself it counts once.

    Threads: one at a time.

    Example:
        >>> waiting = Stopwatch()
        >>> with waiting:
        ...     print("waited")
        waited
        >>> waiting.seconds > 0
        True
    """

    __slots__ = ("_began", "_depth", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._began = 0.0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._began = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began
