"""Trend: a number that jumps, smoothed."""

from __future__ import annotations

import math


class Trend:
    """A mean in which what is further back weighs less.

    Args:
        horizon: How far it looks back, in the weights that `add` is given.

    Example:
        >>> trend = Trend(horizon=20)
        >>> [trend.add(loss) for loss in (4.0, 4.0)]
        [4.0, 4.0]
    """

    def __init__(self, horizon: float) -> None:
        self.horizon = horizon
        self._sum = self._weight = 0.0

    def add(self, value: float | None, weight: float = 1.0) -> float | None:
        """Take in a value; what is no finite number is left out.

        Returns:
            The trend; None as long as nothing was taken in.
        """
        if value is not None and math.isfinite(value):
            kept = math.exp(-weight / self.horizon)
            self._sum = kept * self._sum + (1 - kept) * value
            self._weight = kept * self._weight + (1 - kept)
        return self._sum / self._weight if self._weight else None

    @property
    def steady(self) -> float | None:
        """The trend, once it rests on more than a lucky batch: a quarter of its horizon."""
        return self._sum / self._weight if self._weight >= 1 - math.exp(-0.25) else None
