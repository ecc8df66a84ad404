"""Announcements: whose message is here first on this line, of those that anyone may send.

Announcements travel as fast as the group inside, so the first one read may belong to the message
that comes last. While the earliest known message is still on its way, more are read ahead:

    announced    far, near                          each says when its message left
    due          near  ├──►│        handed out first
                 far   ├───────────────►│

A group can only be waited for, so a thread reads. At most one read is under way, and what it
brings is kept for whoever asks next.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf
from threading import Condition, Thread
from typing import Any

import torch
from torch import Tensor

from reparto.comm._wire import Departure, Wire


class Announcements:
    """Those of one tag. Threads: any.

    Args:
        receive: Receives one from anyone into a tensor, as `Group.recv_anysource` does.
        wire: The line over which the messages come.
    """

    def __init__(self, receive: Callable[[Tensor], Any], wire: Wire) -> None:
        self._receive, self._wire = receive, wire
        self._held: list[tuple[int, Departure]] = []
        self._changed = Condition()
        self._is_reading = False
        self._error: BaseException | None = None

    def take(self, timeout_s: float = inf) -> tuple[int, Departure]:
        """Wait for the message that comes first; its sender, and when it left.

        Raises:
            RuntimeError: If none came in time, or the group inside failed.
        """
        until = time.monotonic() + timeout_s
        with self._changed:
            while True:
                due, first = self._earliest()
                now = time.monotonic()
                if first is not None and due <= now:
                    self._held.remove(first)
                    return first
                if self._error is not None and first is None:
                    error, self._error = self._error, None
                    raise error
                if now >= until:
                    raise RuntimeError(f"no message came over the line within {timeout_s:.3f} s")
                self._read_ahead()
                wake_at = min(due, until)
                self._changed.wait(wake_at - now if wake_at < inf else None)

    def _earliest(self) -> tuple[float, tuple[int, Departure] | None]:
        # Of one sender, messages come in their order, whatever the jitter.
        first_of: dict[int, tuple[int, Departure]] = {}
        for announced in self._held:
            first_of.setdefault(announced[0], announced)
        due = [(self._wire.due(one[1]), one) for one in first_of.values()]
        return min(due, default=(inf, None))

    def _read_ahead(self) -> None:
        if not self._is_reading and self._error is None:
            self._is_reading = True
            # Made here: threads of ours are not known to whoever watches tensors.
            note = torch.zeros(len(Departure._fields), dtype=torch.float64)
            Thread(target=self._read, args=(note,), name="reparto-line", daemon=True).start()

    def _read(self, note: Tensor) -> None:
        announced: tuple[int, Departure] | None = None
        error: BaseException | None = None
        try:
            work = self._receive(note)
            work.wait()
            announced = work._source_rank(), departure_in(note)
        except BaseException as caught:  # whoever waits is to hear of it
            error = caught
        with self._changed:
            self._is_reading, self._error = False, error
            if announced is not None:
                self._held.append(announced)
            self._changed.notify_all()


def departure_in(note: Tensor) -> Departure:
    """Read an announcement that has just come.

    Clocks of two hosts differ: it was not handed over after it came.
    """
    # Not the tensor's own method, which `verify` listens to.
    found = Departure(*torch._C.TensorBase.tolist(note))
    return found._replace(handed_at=min(found.handed_at, time.time()))
