"""What talking takes, between measured sizes and beyond them. Pure.

Measured operations are joined by straight lines; beyond the largest the last slope goes on. Where
an operation was not measured over so many workers, a measured one is scaled by what a line has to
carry: rounds of latency, and bytes through the busiest line.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from reparto.spec import Exchange, Link, Pattern

Points = list[tuple[int, float]]


class Fabric:
    """What talking takes between the workers of a survey.

    Args:
        exchanges: As they were measured.
        links: Between hosts, for latencies.
    """

    def __init__(self, exchanges: Iterable[Exchange], links: Sequence[Link] = ()) -> None:
        self._wall: dict[tuple[Pattern, int], Points] = defaultdict(list)
        self._cpu: dict[tuple[Pattern, int], Points] = defaultdict(list)
        for one in sorted(exchanges, key=lambda one: one.size_bytes):
            key = (one.pattern, one.num_workers)
            self._wall[key].append((one.size_bytes, one.seconds))
            self._cpu[key].append((one.size_bytes, one.cpu_s))
        self._latency_s = max((link.latency_s for link in links), default=1e-4)

    def seconds(self, pattern: Pattern, size_bytes: float, num_workers: int) -> float:
        """Until an operation over so many workers is over."""
        return self._found(self._wall, pattern, size_bytes, num_workers)

    def cpu_s(self, pattern: Pattern, size_bytes: float, num_workers: int) -> float:
        """Processor time that it takes from a worker."""
        return self._found(self._cpu, pattern, size_bytes, num_workers)

    def _found(
        self,
        measured: dict[tuple[Pattern, int], Points],
        pattern: Pattern,
        size_bytes: float,
        num_workers: int,
    ) -> float:
        if num_workers < 2 or size_bytes <= 0:
            return 0.0
        counts = [count for kind, count in measured if kind == pattern]
        if not counts:
            return 0.0
        nearest = min(counts, key=lambda count: (abs(math.log(count / num_workers)), count))
        there = between(measured[pattern, nearest], size_bytes)
        if nearest == num_workers:
            return there
        load = busiest_bytes(pattern, size_bytes, num_workers)
        known = busiest_bytes(pattern, size_bytes, nearest)
        latency_s = self._latency_s * rounds(pattern, nearest)
        moving_s = max(0.0, there - latency_s)
        return self._latency_s * rounds(pattern, num_workers) + moving_s * load / known


def between(points: Points, size: float) -> float:
    """Read a line through measured points; before the first it is flat."""
    if size <= points[0][0] or len(points) == 1:
        first_size, first = points[0]
        return first if size <= first_size else first * size / first_size
    at = min(bisect_left([known for known, _ in points], size), len(points) - 1)
    (left_size, left), (right_size, right) = points[at - 1], points[at]
    slope = max(0.0, (right - left) / (right_size - left_size))
    return left + slope * (size - left_size)


def rounds(pattern: Pattern, num_workers: int) -> float:
    """How many messages follow one another."""
    others = num_workers - 1
    counts: dict[Pattern, float] = {
        "all-reduce": 2 * others,
        "gather": others,
        "exchange": others,
        "broadcast": math.ceil(math.log2(max(2, num_workers))),
    }
    return counts.get(pattern, 1.0)


def busiest_bytes(pattern: Pattern, size_bytes: float, num_workers: int) -> float:
    """What the busiest line carries in one direction."""
    others = num_workers - 1
    share: dict[Pattern, Callable[[], float]] = {
        "all-reduce": lambda: 2 * others / num_workers,
        "gather": lambda: float(others),
        "exchange": lambda: others / num_workers,
        "push": lambda: float(others),
        "pull": lambda: float(others),
    }
    return size_bytes * share.get(pattern, lambda: 1.0)()
