"""Medians and how sure they are, without a library: order statistics. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

_Z95 = 1.959964


def median(times: Sequence[float]) -> float:
    """The middle one, or the mean of the two in the middle.

    Example:
        >>> median([3.0, 1.0, 2.0])
        2.0
    """
    ordered = sorted(times)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def interval(times: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by ranks: no distribution is assumed.

    The ranks are those of the binomial distribution in its normal form; with fewer than six
    times there is no such interval, and all that was seen is it.

    Example:
        >>> interval([float(n) for n in range(1, 101)])
        (40.0, 61.0)
    """
    ordered = sorted(times)
    count = len(ordered)
    if count < 6:
        return ordered[0], ordered[-1]
    half = _Z95 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - half) - 1)
    high = min(count - 1, math.ceil(count / 2 + half))
    return ordered[low], ordered[high]


def percentile(times: Sequence[float], part: float) -> float:
    """The smallest that such a part of all does not exceed (nearest rank).

    Example:
        >>> percentile([float(n) for n in range(1, 101)], 0.99)
        99.0
    """
    ordered = sorted(times)
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
