"""Whether another way of computing steps is faster: decided by times of the training's own steps.

Both ways take turns, so that what else happens on the machine happens to both. What is done only
once, and what a change of ways costs, falls into steps that are not counted:

    steps of 20 ms and more   o p o p o p …                 o: the other way, p: as found
                              ▲ not counted
    shorter ones              o o o p p p o o o p p p …
                              ▲     ▲     ▲     ▲ not counted

Nothing here knows of torch: a trial is told how long each step took, and says which way the next
one goes. Only steps of one kind are compared: as many rows, and a pass begun or not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

#: A way is kept that is faster by so much.
WORTH = 1.03
#: Shorter steps go the same way three times.
SHORT_S = 0.02
TURN = 3
#: So many steps of a kind in each way, or so many in all, and what is not known to help is left.
MOST, MOST_IN_ALL = 16, 120
#: Limits lie where chance alone would put a difference in one case of a hundred.
_DEVIATIONS = 2.33
#: Of long steps few are enough where all of them are so much faster or slower.
CLEARLY_FASTER, LEAST_FASTER = 1.2, 3
CLEARLY_SLOWER, LEAST_SLOWER = 0.8, 2


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What a trial has come to.

    Attributes:
        is_kept: Whether steps go the other way from now on.
        gain: How many times as fast they are there.
        num_steps: So many steps were held against each other.
    """

    is_kept: bool
    gain: float
    num_steps: int


class Trial:
    """Times steps in two ways.

    Args:
        step_s: About how long a step takes.
    """

    def __init__(self, step_s: float) -> None:
        self._turn = TURN if step_s < SHORT_S else 1
        self._times: dict[Hashable, tuple[list[float], list[float]]] = {}
        self._num_taken = self._num_counted = 0

    @property
    def goes_other(self) -> bool:
        """Whether the next step goes the other way."""
        return self._num_taken // self._turn % 2 == 0

    def took(self, seconds: float, kind: Hashable) -> Verdict | None:
        """A step has been computed, the way that was said.

        Args:
            seconds: How long it took.
            kind: Only steps of the same kind are compared.

        Returns:
            What it has come to; None as long as that is open.
        """
        is_other, in_turn = self.goes_other, self._num_taken % self._turn
        is_first = self._num_taken == 0
        self._num_taken += 1
        if is_first or (self._turn > 1 and in_turn == 0):
            return None
        times = self._times.setdefault(kind, ([], []))
        times[is_other].append(seconds)
        self._num_counted += 1
        found = judged(*times, are_long=self._turn == 1)
        if found is None and self._num_counted >= MOST_IN_ALL:
            plain, other = max(self._times.values(), key=lambda both: min(map(len, both)))
            return _left(plain, other)
        return found


def judged(
    plain: Sequence[float], other: Sequence[float], *, are_long: bool = True
) -> Verdict | None:
    """Hold times of steps against each other.

    Args:
        plain: Seconds, as found.
        other: Seconds, the other way.
        are_long: Whether each of them costs something, and a moment's disturbance is little of it.

    Returns:
        Whether the other way is worth it; None as long as that is open.
    """
    num = min(len(plain), len(other))
    if num == 0:
        return None
    ratios = sorted(before / after for before in plain for after in other)
    gain = statistics.median(ratios)
    num_steps = len(plain) + len(other)
    if are_long and num >= LEAST_FASTER and ratios[0] > CLEARLY_FASTER:
        return Verdict(is_kept=True, gain=gain, num_steps=num_steps)
    if are_long and num >= LEAST_SLOWER and ratios[-1] < CLEARLY_SLOWER:
        return Verdict(is_kept=False, gain=gain, num_steps=num_steps)
    if (limits := _limits(ratios, len(plain), len(other))) is not None:
        low, high = limits
        if low > 1 and gain >= WORTH:
            return Verdict(is_kept=True, gain=gain, num_steps=num_steps)
        if high < WORTH:
            return Verdict(is_kept=False, gain=gain, num_steps=num_steps)
    return _left(plain, other) if num >= MOST else None


def _limits(ratios: list[float], num: int, num_other: int) -> tuple[float, float] | None:
    """Between which the true ratio lies, from ranks alone; None where there are too few steps.

    These are Moses' limits for the shift between two samples. They ask for no distribution, so
    that a step that was held up by something else counts as one step and not as its length.
    """
    pairs = num * num_other
    spread = math.sqrt(pairs * (num + num_other + 1) / 12)
    rank = math.floor(pairs / 2 - _DEVIATIONS * spread)
    return (ratios[rank - 1], ratios[-rank]) if rank >= 1 else None


def _left(plain: Sequence[float], other: Sequence[float]) -> Verdict:
    known = bool(plain) and bool(other)
    gain = statistics.median(plain) / statistics.median(other) if known else 1.0
    return Verdict(is_kept=False, gain=gain, num_steps=len(plain) + len(other))
