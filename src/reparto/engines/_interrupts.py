"""Counts Ctrl-C and SIGTERM instead of raising in the middle of something."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """While entered, requests to stop are counted.

    In a thread other than the main one nothing is counted: signals do not come there.

    Attributes:
        num_seen: Requests so far.
    """

    def __init__(self) -> None:
        self.num_seen = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._count) for each in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    def _count(self, number: int, frame: FrameType | None) -> None:
        self.num_seen += 1
