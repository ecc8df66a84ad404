"""Workers that wait for nobody but a server, simulated: a heap of events.

worker    computing, packing ─► in the queue ─► served ─► computing …
server    takes one after the other, in the order in which they come
bound     who is too far ahead of the slowest gets no answer before that one has come nearer
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from reparto.plan._clocks import Spent
from reparto.plan._noise import Noise, Vector

#: Workers that fail more often never come to an end.
MOST_FAILURES = 100_000


@dataclass(frozen=True, kw_only=True)
class Service:
    """What workers and their server do.

    Attributes:
        compute_s: Of each worker.
        pack_s: The strategy's own, a step.
        line_s: For which a worker has the server's line to itself.
        way_s: Besides, until it can go on.
        bound: How far ahead of the slowest a worker may be.
        restart_s: From a worker's failure until it goes on; nobody else stops.
    """

    compute_s: Vector
    pack_s: float
    line_s: float
    way_s: float
    bound: int
    restart_s: float = 0.0


@dataclass
class Served:
    """What came of it.

    Attributes:
        ends: When as many steps were made as there are workers, and twice as many, and so on;
            fewer than were wanted where workers fail too often.
        spent: By all workers, on what.
        num_failures: Of workers; each loses the step that it is in.
    """

    ends: list[float]
    spent: Spent
    num_failures: int = 0


def serve(service: Service, noise: Noise, num_steps: int) -> Served:
    """Simulate until as many steps were made by all together as by each that many."""
    return _Queue(service, noise).run(num_steps)


class _Queue:
    def __init__(self, service: Service, noise: Noise) -> None:
        self._service, self._noise = service, noise
        self._size = len(service.compute_s)
        self._usual: list[float] = service.compute_s.tolist()
        self._factors: list[list[float]] = [[] for _ in self._usual]  # the next step's is last
        self._drawn: dict[int, tuple[list[list[float]], list[int]]] = {}  # who has yet to take it
        self._taken = [0] * self._size
        self._fails_at = [noise.next_failure(0.0) for _ in self._usual]
        self._computing = self._down = 0.0
        self._num_failures = 0

    def run(self, num_steps: int) -> Served:
        service, size, ready = self._service, self._size, self._ready
        line_s, way_s, bound = service.line_s, service.way_s, service.bound
        heap = [(ready(rank, 0.0), rank) for rank in range(size)]
        heapq.heapify(heap)
        done = [0] * size
        made = [size]  # how many workers have made so many steps, and no more
        held: list[tuple[int, float, int]] = []  # steps, since when, who
        slowest, free, waiting, count = 0, 0.0, 0.0, 0
        ends: list[float] = []
        while len(ends) < num_steps:
            arrived, rank = heap[0]
            if arrived == math.inf:
                break
            if arrived < free:
                waiting += free - arrived
                free += line_s
            else:
                free = arrived + line_s
            count += 1
            if count == size:
                ends.append(free)
                count = 0
            steps = done[rank]
            done[rank] = steps + 1
            made[steps] -= 1
            if steps + 1 == len(made):
                made.append(0)
            made[steps + 1] += 1
            if steps == slowest and not made[steps]:
                slowest += 1
                while held and held[0][0] - slowest <= bound:
                    _, since, other = heapq.heappop(held)
                    waiting += free - since
                    heapq.heappush(heap, (ready(other, free + way_s), other))
            if steps + 1 - slowest > bound:
                heapq.heappop(heap)
                heapq.heappush(held, (steps + 1, free, rank))
            else:
                heapq.heapreplace(heap, (ready(rank, free + way_s), rank))
        spent = Spent(
            computing=self._computing,
            packing=service.pack_s * len(ends) * size,
            talking=(line_s + way_s) * len(ends) * size,
            waiting=waiting,
            down=self._down,
        )
        return Served(ends, spent, self._num_failures)

    def _ready(self, rank: int, now: float) -> float:
        """When a worker that begins a step now asks the server."""
        factors = self._factors[rank] or self._more(rank)
        seconds = self._usual[rank] * factors.pop()
        self._computing += seconds
        ready = now + seconds + self._service.pack_s
        if ready <= self._fails_at[rank]:
            return ready
        return self._after_failures(rank, now, ready - now)

    def _after_failures(self, rank: int, now: float, seconds: float) -> float:
        """The same, where it fails meanwhile and begins the step again."""
        while now + seconds > self._fails_at[rank]:
            if self._num_failures >= MOST_FAILURES:
                return math.inf
            self._num_failures += 1
            again = max(now, self._fails_at[rank]) + self._service.restart_s
            self._down += again - now
            self._fails_at[rank] = self._noise.next_failure(again)
            now = again
        return now + seconds

    def _more(self, rank: int) -> list[float]:
        """A worker's next block of factors; the last one to take a block lets go of it."""
        number = self._taken[rank]
        self._taken[rank] += 1
        if number not in self._drawn:
            self._drawn[number] = self._noise.block()[::-1].T.tolist(), [self._size]
        block, left = self._drawn[number]
        left[0] -= 1
        if not left[0]:
            del self._drawn[number]
        self._factors[rank] = block[rank]
        return block[rank]
