"""A worker of this machine whose words are passed on, and one that stands in for it elsewhere.

    its own machine                          every other machine
    OwnWorker ──what it tells──► circle ──► StandIn.decode ──► the supervisor there
              ──how it ended───► circle ──► StandIn.end

Supervisors treat both alike, so all machines judge by the same rules.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from signal import SIGKILL, Signals

from reparto.engines._process import WorkerProcess
from reparto.engines._remote import LOST, in_our_time
from reparto.engines._worker import Worker
from reparto.spec import Event, Failure, Note


class OwnWorker(WorkerProcess):
    """A worker of this machine; what it tells is passed on to the others."""

    tell: Callable[..., None]

    def decode(self, data: bytes) -> list[Event]:
        """Cut into events, and pass on."""
        self.tell(kind="told", rank=self.rank, data=data.decode("latin-1"))
        return super().decode(data)


class StandIn(Worker):
    """Stands in for a worker of another machine, which looks after it and tells of it.

    Args:
        rank: Its rank.
        host: The name of its host.

    Attributes:
        clock_ahead_s: By how much that machine's clock is ahead of ours.
    """

    def __init__(self, rank: int, host: str) -> None:
        super().__init__(rank, host)
        self.pipes = {}
        self.clock_ahead_s = 0.0
        self._end: int | None = None

    def end(self, status: int) -> None:
        """Take note that it has ended, as of `subprocess.Popen.returncode`."""
        if self._end is None:
            self._end = status

    def lose(self, why: str) -> None:
        """Take note that nothing will be heard of it any more."""
        if self._end is None:
            self.fail(
                Failure(
                    rank=self.rank, host=self.host, error=LOST, message=why, time_s=time.time()
                )
            )
            self.end(-SIGKILL)

    def decode(self, data: bytes) -> list[Event]:
        """Cut into events, and translate: our clock, and where it is that a note tells of."""
        events = super().decode(data)
        return [self._located(in_our_time(event, self.clock_ahead_s)) for event in events]

    def _located(self, event: Event) -> Event:
        if isinstance(event, Note):
            return dataclasses.replace(event, text=f"on {self.host}: {event.text}")
        return event

    def go(self) -> None:
        """Its own machine tells it."""

    def has_died(self) -> bool:
        """Whether its machine has told its end."""
        return self._end is not None

    def reap(self, *, sweep: bool) -> None:
        """Take note of its end; its machine has swept already."""
        self.status = self._end

    def signal(self, how: Signals) -> None:
        """Its machine hears what we hear, and does this itself."""
