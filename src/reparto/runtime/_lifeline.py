"""A worker dies with the engine that started it, however that ends, and so do its children.

How it learns of that:

    engine alive:  control pipe open
    engine gone:   EOF on it ──► a thread kills the worker's process group
    and, on Linux, the kernel kills the worker even if no thread of it can run any more
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from typing import Any

_PR_SET_PDEATHSIG = 1


def die_with_engine(control_fd: int | None) -> threading.Event:
    """Watch the engine from now on.

    Args:
        control_fd: The reading end of a pipe that only the engine can write to; None if there
            is no engine to watch.

    Returns:
        Is set when the engine has written its first line, or at once if there is no engine.
    """
    arrived = threading.Event()
    if control_fd is None:
        arrived.set()
        return arrived
    _ask_the_kernel()
    threading.Thread(
        target=_watch, args=(control_fd, arrived), name="reparto-lifeline", daemon=True
    ).start()
    return arrived


def _watch(control_fd: int, arrived: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while os.read(control_fd, 4096):
            arrived.set()
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _ask_the_kernel() -> None:
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    # The kernel's order is not inherited by fork, so the loaders' children get one of their
    # own. It goes by the *thread* that forked: only the main one surely lives as long.
    from_main: list[bool] = []

    def remember() -> None:
        from_main[:] = [threading.get_native_id() == os.getpid()]

    def follow(*_: Any) -> None:
        if from_main == [True]:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    os.register_at_fork(before=remember, after_in_child=follow)
