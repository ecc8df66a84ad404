"""Spared rows: those by which training sees when to stop, as unlike the others as the tested ones.

Rows that are tested are of other groups, or later, where folds say so; so are those that are
spared. Else a model would stop when it knows the groups, or the past, by heart.

    by time    │ spared │ ── trained on ──────────────── │      the newest come first
    by groups  │ a  b  a  c  b  a  b  C  a  b  C  a  C │        whole groups, from the end on
    else       │ ── trained on ──────────────── │ spared │      each part is a sample of all
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import Rows

#: Of all rows, no more are spared, however large the groups are.
MOST = 1 / 3

Places = slice | NDArray[np.int64]


@dataclass(frozen=True)
class Parted:
    """Rows in two parts.

    Attributes:
        kept: Where those lie that are trained on.
        spared: Where the others lie.
        num_spared: So many they are.
    """

    kept: Places
    spared: Places
    num_spared: int


def parted(rows: Rows, num_spared: int) -> Parted | None:
    """Spare about so many rows.

    Args:
        rows: All that there are to be trained on.
        num_spared: How many; of groups, as many as it takes.

    Returns:
        None if there are none that could be spared: groups are too large, or those that are not
        have not half as many rows.
    """
    count = len(rows)
    if not 0 < num_spared < count:
        return None
    if rows.groups is not None:
        return _whole_groups(rows.groups, num_spared)
    if rows.newest_first:
        return Parted(slice(num_spared, count), slice(0, num_spared), num_spared)
    kept = count - num_spared
    return Parted(slice(0, kept), slice(kept, count), num_spared)


def _whole_groups(groups: NDArray[np.int64], num_spared: int) -> Parted | None:
    _, lasts, own, sizes = np.unique(
        groups[::-1], return_index=True, return_inverse=True, return_counts=True
    )
    chosen, total, most = np.zeros(len(sizes), bool), 0, MOST * len(groups)
    for group in np.argsort(lasts):
        if total >= num_spared:
            break
        if total + sizes[group] <= most:
            chosen[group] = True
            total += int(sizes[group])
    if 2 * total < num_spared:  # by a few rows it would be luck when training stops
        return None
    is_spared = chosen[own][::-1]
    return Parted(np.flatnonzero(~is_spared), np.flatnonzero(is_spared), total)
