"""How long workers compute: between measured slices, and with slices in proportion. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reparto.spec import SliceTime

#: The runtime keeps equal slices unless others would gain so much.
WORTH_BALANCING = 1.10


@dataclass(frozen=True)
class Pace:
    """How long one worker takes for a step, by the rows of its slice.

    Attributes:
        slices: Measured, the fewest rows first.
    """

    slices: tuple[SliceTime, ...]

    @classmethod
    def of(cls, slices: Sequence[SliceTime], *, apart: bool) -> Pace:
        """Those of replicas that are apart, or of those that are not; all where there are none."""
        found = tuple(one for one in slices if one.apart == apart) or tuple(slices)
        return cls(tuple(sorted(found, key=lambda one: one.rows)))

    def step_s(self, rows: float) -> float:
        """Read a line through what was measured; beyond the ends it goes on."""
        return _read([(one.rows, one.step_s) for one in self.slices], rows)

    def cpu_s(self, rows: float) -> float:
        """The same of processor time."""
        return _read([(one.rows, one.cpu_s) for one in self.slices], rows)

    @property
    def num_meetings(self) -> float:
        """How often workers meet in a step, besides for gradients."""
        return max((one.num_meetings for one in self.slices), default=0.0)

    def at(self, rows: float) -> SliceTime:
        """The measured slice that is nearest in size."""
        return min(self.slices, key=lambda one: abs(one.rows - rows))


def _read(points: Sequence[tuple[int, float]], rows: float) -> float:
    if len(points) == 1:
        return points[0][1]
    at = 1
    while at < len(points) - 1 and points[at][0] < rows:
        at += 1
    (left_rows, left), (right_rows, right) = points[at - 1], points[at]
    slope = max(0.0, (right - left) / (right_rows - left_rows))
    return max(left + slope * (rows - left_rows), 0.2 * points[0][1])


def shared_rows(paces: Sequence[Pace], total: float, *, balanced: bool) -> list[float]:
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


def _rows_in(pace: Pace, seconds: float, total: float) -> float:
    """How many rows a worker computes in a time; at least one."""
    low, high = 1.0, float(total)
    if pace.step_s(high) <= seconds:
        return high
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if pace.step_s(middle) <= seconds else (low, middle)
    return low
