"""Stretches: what was timed, piece by piece, and which of the pieces count. Pure.

A stretch counts if nothing disturbed it. Where hardly any did not, all of them are taken, and the
row is known badly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from reparto.spec import Flag

FEW = 3


class Stretches:
    """Times of one measurement.

    Args:
        enough_s: Of time that counts.
        most_s: Of time at all.
    """

    def __init__(self, enough_s: float, most_s: float) -> None:
        self._enough_s, self._most_s = enough_s, most_s
        self.every: list[float] = []
        self._good: list[float] = []
        self._is_extended = False
        self._num_good, self._num, self._good_s, self._spent_s = 0, 0, 0.0, 0.0

    def add(self, times: Sequence[float], seconds: float, *, counts: bool) -> None:
        """Add a stretch.

        Args:
            times: Of its steps or calls; empty if it told nothing.
            seconds: How long it was.
            counts: Whether nothing disturbed it.
        """
        self._spent_s += seconds
        if counts:  # also without times: it may be the first step, which was too short to count
            self._good_s += seconds
        self.every += times
        self._num += bool(times)
        if counts and times:
            self._good += times
            self._num_good += 1

    def extended(self, seconds: Callable[[], float]) -> bool:
        """Go on for some more seconds, once, if hardly anything was timed in peace."""
        if self._is_extended or not self.disturbed:
            return False
        self._is_extended = True
        self._most_s += seconds()
        return not self.enough

    @property
    def enough(self) -> bool:
        """Whether it was timed for long enough, or too long already."""
        return self._good_s >= self._enough_s or self._spent_s >= self._most_s

    @property
    def times(self) -> list[float]:
        """What the row is made of."""
        return self.every if self.disturbed else self._good

    @property
    def disturbed(self) -> bool:
        """Whether hardly anything could be timed in peace."""
        return self._num_good < min(FEW, self._num)

    def marked(self, flags: tuple[Flag, ...]) -> tuple[Flag, ...]:
        """Those flags, and what is wrong with these times."""
        return (*flags, "noisy") if self.disturbed and "noisy" not in flags else flags

    @property
    def notes(self) -> tuple[str, ...]:
        """In words."""
        left_out = self._num - self._num_good
        if self.disturbed:
            return ("others used the processor's cores nearly all the time",)
        if not left_out:
            return ()
        return (f"{left_out} of {self._num} stretches do not count: others used the core",)
