"""Whose world: which worker's view the code that runs now belongs to."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reparto.runtime import _tensors

if TYPE_CHECKING:
    from reparto.runtime._world import World

_thread = threading.local()
_process: World | None = None
_has_threads = False


def current() -> World | None:
    """The world of this thread: its own (tests), or that of the process."""
    if _has_threads:
        world = getattr(_thread, "world", None)
        return None if world is OUTSIDE else world or _process
    return _process


#: Of a thread that does nothing for the script.
OUTSIDE: Any = object()


# A process that the script forks (a DataLoader's worker) is no worker of ours.
os.register_at_fork(after_in_child=lambda: enter(None))


def enter(world: World | None) -> None:
    """Make a world that of the process."""
    global _process
    _process = world


def enter_thread(world: World | None) -> None:
    """Make a world that of this thread; several workers then live in one process."""
    global _has_threads
    _has_threads = True
    _thread.world = world


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """What this thread does inside, it does not do for the script."""
    global _has_threads
    was = getattr(_thread, "world", None)
    _thread.world, _has_threads = OUTSIDE, True
    try:
        yield
    finally:
        _thread.world = was


_tensors._current.append(current)
