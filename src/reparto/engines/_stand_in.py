"""A worker of this machine whose words are passed on, and one that stands in for it elsewhere.

    its own machine                          every other machine
    OwnWorker ──what it tells──► circle ──► StandIn.decode ──► the supervisor there
              ──how it ended───► circle ──► StandIn.end

Supervisors treat both alike, so all machines judge by the same rules.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from signal import Signals

from reparto.engines._process import WorkerProcess
from reparto.engines._remote import ToldWorker, in_our_time
from reparto.spec import Event, Note


class OwnWorker(WorkerProcess):
    """A worker of this machine; what it tells is passed on to the others."""

    tell: Callable[..., None]

    def decode(self, data: bytes) -> list[Event]:
        """Cut into events, and pass on."""
        self.tell(kind="told", rank=self.rank, data=data.decode("latin-1"))
        return super().decode(data)


class StandIn(ToldWorker):
    """Stands in for a worker of another machine, which looks after it and tells of it.

    Args:
        rank: Its rank.
        host: The name of its host.

    Attributes:
        clock_ahead_s: By how much that machine's clock is ahead of ours.
    """

    clock_ahead_s = 0.0

    def decode(self, data: bytes) -> list[Event]:
        """Cut into events, and translate: our clock, and where it is that a note tells of."""
        events = super().decode(data)
        return [self._located(in_our_time(event, self.clock_ahead_s)) for event in events]

    def _located(self, event: Event) -> Event:
        if isinstance(event, Note):
            return dataclasses.replace(event, text=f"on {self.host}: {event.text}")
        return event

    def signal(self, how: Signals) -> None:
        """Its machine hears what we hear, and does this itself."""
