"""The largest call that meets a deadline: doubled until it does not, then halved in between.

1 ✓  2 ✓  4 ✓ … 4096 ✓  8192 ✗ ──► 6144 ✓  7168 ✗ ──► 6656 ✓: within an eighth of the truth
"""

from __future__ import annotations

from collections.abc import Callable

#: Samples of a call, at most: more is no call but a data set.
MOST = 1 << 20
CUTS = 3


def largest(meets: Callable[[int], bool]) -> int:
    """The largest number of samples with which a call is in time, found by trying.

    Args:
        meets: Tries such a call; larger ones take longer.

    Returns:
        0 if not even one sample is in time.

    Example:
        >>> largest(lambda rows: rows <= 7000)
        6656
    """
    good, bad = 0, 1
    while bad <= MOST and meets(bad):
        good, bad = bad, 2 * bad
    if good in (0, MOST):
        return good
    for _ in range(CUTS):
        between = (good + bad) // 2
        if between == good:
            break
        if meets(between):
            good = between
        else:
            bad = between
    return good
