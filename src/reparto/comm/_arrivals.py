"""Arrivals: which message is here first on this line, of those that anyone may send.

The group inside brings messages in the order in which they were sent, and the first one may be
the last on the line. So they are kept until they are due, and while the earliest is still on its
way, more are read ahead:

    sent         far, near                      beside each travels when it left
    handed out   near  ├──►│
                 far   ├───────────────►│

A group can only be waited for, so a thread reads. It reads the message, too: whoever sends may
wait for that. At most one read is under way, and what it brings is kept for whoever asks next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf
from threading import Condition, Thread
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reparto.comm._wire import Departure, Wire


class Arrival(NamedTuple):
    """A message that is here in truth, from whom, and when it left."""

    source: int
    departure: Departure
    tensors: Sequence[Tensor]


class Arrivals:
    """The messages of one tag; all have the size that is asked for. Threads: any.

    Args:
        announced: Receives from anyone when a message left.
        receive: Receives into tensors the message of that member.
        wire: The line over which they come.
    """

    def __init__(
        self,
        announced: Callable[[Tensor], Any],
        receive: Callable[[Sequence[Tensor], int], Any],
        wire: Wire,
    ) -> None:
        self._announced, self._receive, self._wire = announced, receive, wire
        self._kept: list[Arrival] = []
        self._changed = Condition()
        self._is_reading = False
        self._error: BaseException | None = None

    def take(self, like: Sequence[Tensor], timeout_s: float = inf) -> Arrival:
        """Wait for the message that comes first.

        Args:
            like: Tensors of its size.
            timeout_s: How long to wait.

        Raises:
            RuntimeError: If none came in time, or the group inside failed.
        """
        until = time.monotonic() + timeout_s
        with self._changed:
            while True:
                now = time.monotonic()
                place, due = self._earliest()
                if due <= now:
                    return self._kept.pop(place)
                if self._error is not None and due == inf:
                    error, self._error = self._error, None
                    raise error
                if now >= until:
                    raise RuntimeError(f"no message came over the line within {timeout_s:.3f} s")
                self._read_ahead(like)
                wake_at = min(due, until)
                self._changed.wait(wake_at - now if wake_at < inf else None)

    def _earliest(self) -> tuple[int, float]:
        # Of one sender, messages come in their order, whatever the jitter.
        first_of: dict[int, int] = {}
        for place, arrival in enumerate(self._kept):
            first_of.setdefault(arrival.source, place)
        due = ((place, self._wire.due(self._kept[place].departure)) for place in first_of.values())
        return min(due, key=lambda one: one[1], default=(-1, inf))

    def _read_ahead(self, like: Sequence[Tensor]) -> None:
        if not self._is_reading and self._error is None:
            self._is_reading = True
            # Made here: threads of ours are not known to whoever watches tensors.
            into = no_departure(), [torch.empty_like(tensor) for tensor in like]
            Thread(target=self._read, args=into, name="reparto-line", daemon=True).start()

    def _read(self, note: Tensor, tensors: Sequence[Tensor]) -> None:
        arrival: Arrival | None = None
        error: BaseException | None = None
        try:
            work = self._announced(note)
            work.wait()
            source, departure = work._source_rank(), departure_in(note)
            self._receive(tensors, source).wait()
            arrival = Arrival(source, departure, tensors)
        except BaseException as caught:  # whoever waits is to hear of it
            error = caught
        with self._changed:
            self._is_reading, self._error = False, error
            if arrival is not None:
                self._kept.append(arrival)
            self._changed.notify_all()


def no_departure() -> Tensor:
    """A tensor that receives a departure."""
    return torch.zeros(len(Departure._fields), dtype=torch.float64)


def departure_in(note: Tensor) -> Departure:
    """Read a departure that has just come.

    Clocks of two hosts differ: it was not handed over after it came.
    """
    # Not the tensor's own method, which `verify` listens to.
    found = Departure(*torch._C.TensorBase.tolist(note))
    return found._replace(handed_at=min(found.handed_at, time.time()))
