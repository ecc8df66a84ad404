"""How long workers compute: between measured slices, and with slices in proportion. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from reparto.spec import SliceTime, Survey, WorkerProfile

#: The runtime keeps equal slices unless others would gain so much.
WORTH_BALANCING = 1.10


@dataclass(frozen=True)
class Pace:
    """How long one worker takes for a step, by the rows of its slice.

    Attributes:
        slices: Measured, the fewest rows first.
    """

    slices: tuple[SliceTime, ...]

    def step_s(self, rows: float) -> float:
        """Read a line through what was measured; beyond the ends it goes on."""
        slices = self.slices
        if len(slices) == 1:
            return slices[0].step_s
        at = 1
        while at < len(slices) - 1 and slices[at].rows < rows:
            at += 1
        left, right = slices[at - 1], slices[at]
        slope = max(0.0, (right.step_s - left.step_s) / (right.rows - left.rows))
        return max(left.step_s + slope * (rows - left.rows), 0.2 * slices[0].step_s)

    def at(self, rows: float) -> SliceTime:
        """The measured slice that is nearest in size."""
        return min(self.slices, key=lambda one: abs(one.rows - rows))


def paces(survey: Survey, num_workers: int) -> list[Pace]:
    """How fast each of so many workers is while all of them compute."""
    by_rank: dict[int, list[WorkerProfile]] = defaultdict(list)
    for one in survey.workers:
        by_rank[one.rank].append(one)
    found = []
    for rank in members(survey, num_workers):
        known = by_rank.get(rank) or survey.workers  # nobody looked: as the others
        nearest = min(known, key=lambda one: abs(one.num_workers - num_workers))
        found.append(Pace(nearest.slices))
    return found


def members(survey: Survey, num_workers: int) -> list[int]:
    """The ranks that were measured together for so many workers."""
    ranks = sorted({one.rank for one in survey.workers if one.num_workers == num_workers})
    return ranks if len(ranks) == num_workers else list(range(num_workers))


def shared_rows(paces: Sequence[Pace], total: int, *, balanced: bool) -> list[float]:
    """Rows of each worker: equal, or so that all take as long where that is worth it."""
    count = len(paces)
    even = [total / count] * count
    if not balanced or total < 2 * count:
        return even
    longest = max(pace.step_s(rows) for pace, rows in zip(paces, even, strict=True))
    low, high = 0.0, longest
    for _ in range(40):
        middle = (low + high) / 2
        if sum(_rows_in(pace, middle, total) for pace in paces) >= total:
            high = middle
        else:
            low = middle
    if longest < WORTH_BALANCING * high:
        return even
    rows = [_rows_in(pace, high, total) for pace in paces]
    return [one * total / sum(rows) for one in rows]


def _rows_in(pace: Pace, seconds: float, total: int) -> float:
    """How many rows a worker computes in a time; at least one."""
    low, high = 1.0, float(total)
    if pace.step_s(high) <= seconds:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if pace.step_s(middle) <= seconds else (low, middle)
    return low
