"""Ctrl-C comes later: what is half done stays whole."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """While entered, Ctrl-C is only noted; it is raised at the end.

    To block the signal would not do: a thread of a library takes it, and we are interrupted.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    seen: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if seen:
            before(*seen[0])
