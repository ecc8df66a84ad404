"""From what each worker tells of each step to one curve.

worker 0   step 1   step 2   step 3 …   ┐
worker 1   step 1   step 2              ┴─► step 1, step 2: told by all, so they are on the curve
"""

from __future__ import annotations

from collections.abc import Iterable

from reparto.measure import Trend
from reparto.spec import StepRecord, Waypoint

#: The trend looks back over so many steps of the first run that is compared.
HORIZON_STEPS = 20
MAX_POINTS = 400


class Curve:
    """Grows while a run goes on. Its size is bounded: of long runs, evenly spaced steps are kept.

    Args:
        num_workers: How many workers tell.
        horizon: Samples over which the trend looks back; by default so many as
            `HORIZON_STEPS` steps use. Runs that are compared have the same.
        target: The loss to reach.

    Attributes:
        reached: Where the trend first was as low as the target.
    """

    def __init__(
        self, num_workers: int, *, horizon: float | None = None, target: float | None = None
    ) -> None:
        self.horizon = horizon
        self.reached: Waypoint | None = None
        self._num_workers, self._target = num_workers, target
        self._told: dict[int, dict[int, StepRecord]] = {}
        self._last = Waypoint(step=0, time_s=0.0, samples=0)
        self._points: list[Waypoint] = []
        self._stride = 1
        self._trend: Trend | None = None

    def add(self, rank: int, record: StepRecord) -> None:
        """A worker has told of a step."""
        self._told.setdefault(record.step, {})[rank] = record
        while len(self._told.get(self._last.step + 1, ())) == self._num_workers:
            self._extend(self._told.pop(self._last.step + 1))

    def points(self) -> tuple[Waypoint, ...]:
        """The curve so far, with its last step."""
        is_whole = not self._last.step or self._points[-1].step == self._last.step
        return tuple(self._points if is_whole else [*self._points, self._last])

    def _extend(self, told: dict[int, StepRecord]) -> None:
        before, main = self._last, told[0]
        loss = _mean(one.loss for one in told.values() if one.loss is not None)
        self._last = Waypoint(
            step=main.step,
            time_s=main.time_s,
            samples=before.samples + main.samples,
            loss=loss,
            trend=self._smoothed(loss, main.samples),
            wire_bytes=before.wire_bytes + (_mean(o.wire_bytes for o in told.values()) or 0.0),
            waited_s=before.waited_s + (_mean(one.waited_s for one in told.values()) or 0.0),
        )
        self._keep(self._last)
        if self.reached is None and self._is_low_enough():
            self.reached = self._last

    def _smoothed(self, loss: float | None, samples: int) -> float | None:
        if self._trend is None:
            self.horizon = self.horizon or float(HORIZON_STEPS * max(samples, 1))
            self._trend = Trend(self.horizon)
        return self._trend.add(loss, max(samples, 1))

    def _is_low_enough(self) -> bool:
        trend = None if self._trend is None else self._trend.steady
        return self._target is not None and trend is not None and trend <= self._target

    def _keep(self, point: Waypoint) -> None:
        if (point.step - 1) % self._stride:
            return
        self._points.append(point)
        if len(self._points) > MAX_POINTS:
            self._points = self._points[::2]
            self._stride *= 2


def _mean(numbers: Iterable[float]) -> float | None:
    found = list(numbers)
    return sum(found) / len(found) if found else None
