"""Ledger: who worked, who was held, and what it costs."""

from __future__ import annotations

import dataclasses

from reparto.spec import Bill, WorkerBill


class Ledger:
    """Keeps a line for each worker. Times are seconds since the search began.

    Args:
        price_per_hour: Of a worker.
        earlier: What was spent before the search was resumed.
    """

    def __init__(self, price_per_hour: float, earlier: Bill | None = None) -> None:
        self._price = price_per_hour
        self._earlier = () if earlier is None else earlier.workers
        self._lines: dict[int, WorkerBill] = {}
        self._held: set[int] = set()

    def acquired(self, worker: int, now_s: float, host: str = "") -> None:
        """It is paid for from now on."""
        self._lines[worker] = WorkerBill(worker=worker, host=host, acquired_s=now_s)
        self._held.add(worker)

    def ready(self, worker: int, host: str) -> None:
        """It is known where it is."""
        self._change(worker, host=host)

    def worked(self, worker: int, busy_s: float) -> None:
        """It has done so much for a candidate."""
        line = self._lines[worker]
        self._change(worker, busy_s=line.busy_s + busy_s, num_candidates=line.num_candidates + 1)

    def released(self, worker: int, now_s: float, ended: str = "released") -> None:
        """It is not paid for any more."""
        if worker in self._held:
            self._held.discard(worker)
            self._change(worker, released_s=now_s, ended=ended)

    def cost_at(self, now_s: float) -> float:
        """What it has cost until now."""
        return self.bill(now_s).cost

    def rate(self) -> float:
        """What a second costs now, with all that are held."""
        return len(self._held) * self._price / 3600.0

    def bill(self, now_s: float) -> Bill:
        """All lines, those that are still held until now."""
        own = (
            dataclasses.replace(line, released_s=now_s) if number in self._held else line
            for number, line in sorted(self._lines.items())
        )
        lines = (*self._earlier, *own)
        paid_s = sum(line.paid_s for line in lines)
        return Bill(
            workers=lines,
            price_per_hour=self._price,
            busy_s=sum(line.busy_s for line in lines),
            paid_s=paid_s,
            cost=paid_s * self._price / 3600.0,
        )

    def _change(self, worker: int, **changes: object) -> None:
        self._lines[worker] = dataclasses.replace(self._lines[worker], **changes)  # type: ignore[arg-type]
