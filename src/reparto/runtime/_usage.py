"""The first worker of each host tells now and then what the host uses, while the script runs.

    script    ├──────────────────────────────────────────────────┤
    thread    ├─ every_s ─┬─ every_s ─┬─ …                       ┬─ what is left
                          ▼ Usage     ▼ Usage                    ▼ Usage

The last one tells what was left, so that a short script is told of, too.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from reparto.measure import UsageSampler
from reparto.runtime._events import EventWriter
from reparto.spec import Assignment

_JOIN_S = 2.0


@contextlib.contextmanager
def usage_told(events: EventWriter, assignment: Assignment, rank: int) -> Iterator[None]:
    """Tell of this host's usage in the meantime, if that is wanted and this worker's business."""
    placement = assignment.plan.placement
    every_s = assignment.options.usage_every_s
    if every_s <= 0 or placement.index(placement[rank]) != rank:
        yield
        return
    with contextlib.closing(UsageSampler()) as sampler:
        teller = _Teller(events, placement[rank], sampler, every_s)
        teller.start()
        try:
            yield
        finally:
            teller.end()


class _Teller(threading.Thread):
    def __init__(
        self, events: EventWriter, host: str, sampler: UsageSampler, every_s: float
    ) -> None:
        super().__init__(name="reparto-usage", daemon=True)
        self._events, self._host = events, host
        self._sampler, self._every_s = sampler, every_s
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._every_s):
            self._tell()
        self._tell()

    def _tell(self) -> None:
        with contextlib.suppress(OSError):  # what was there to be read is gone
            self._events.usage(self._host, self._sampler.take())

    def end(self) -> None:
        self._over.set()
        self.join(_JOIN_S)
