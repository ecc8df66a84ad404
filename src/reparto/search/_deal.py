"""Rows dealt out into parts: evenly, class by class, or group by group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._tables._table import Table

#: With more groups than that they are dealt out at random: they even out by themselves.
_MANY_GROUPS = 20_000
#: Of a regression's values, each with as many rows.
_NUM_STRATA = 10

_Ints = NDArray[np.int64]


def strata_of(table: Table) -> _Ints:
    """What should be shared out evenly: the class, or a tenth of a regression's values."""
    if table.y is None:
        return np.zeros(table.x.shape[0], np.int64)
    if table.facts.is_classification:
        return table.y.astype(np.int64)
    ranks = np.argsort(np.argsort(table.y, kind="stable"), kind="stable")
    return (ranks * min(_NUM_STRATA, len(ranks)) // len(ranks)).astype(np.int64)


def by_strata(strata: _Ints, parts: int, rng: np.random.Generator) -> _Ints:
    """The part of each row: those of a stratum go to each part in turn, and so on with the next.

    Parts are alike in size, and in rows of each stratum, to one row.
    """
    order = np.lexsort((rng.permutation(len(strata)), strata))
    dealt = np.empty(len(strata), np.int64)
    dealt[order] = (np.arange(len(strata)) + rng.integers(parts)) % parts
    return dealt


def by_groups(groups: _Ints, strata: _Ints, parts: int, rng: np.random.Generator) -> _Ints:
    """The part of each row; a group is in one part only. As even as a greedy choice makes it."""
    _, own = np.unique(groups, return_inverse=True)
    num_groups = int(own.max()) + 1
    if num_groups > _MANY_GROUPS:
        return by_strata(np.zeros(num_groups, np.int64), parts, rng)[own]
    num_strata = int(strata.max()) + 1
    counts = np.zeros((num_groups, num_strata))
    np.add.at(counts, (own, strata), 1.0)
    totals = np.maximum(counts.sum(axis=0), 1.0)
    weights = counts / totals  # of each stratum, the share that the group has
    sizes = counts.sum(axis=1) / len(groups)
    part_of = np.empty(num_groups, np.int64)
    held, full = np.zeros((parts, num_strata)), np.zeros(parts)
    used = np.zeros(parts, np.int64)
    order = np.lexsort((rng.permutation(num_groups), -sizes))
    for left, group in zip(range(num_groups, 0, -1), order, strict=True):
        # To add g to a part that holds h adds 2·g·h + g² to the sum of squares; that is least
        # where all parts hold the same.
        added = held @ weights[group] / num_strata + full * sizes[group]
        if left <= (used == 0).sum():
            added[used > 0] = np.inf  # no part stays empty
        chosen = int(np.argmin(added))
        part_of[group] = chosen
        held[chosen] += weights[group]
        full[chosen] += sizes[group]
        used[chosen] += 1
    return part_of[own]


def scattered(
    dealt: _Ints, parts: int, strata: _Ints, rng: np.random.Generator
) -> list[NDArray[Any]]:
    """The rows of each part, in an order of which each beginning is a stratified sample."""
    blocks = []
    for part in range(parts):
        rows = np.flatnonzero(dealt == part)
        rows = rng.permutation(rows)
        own = strata[rows]
        by_stratum = np.argsort(own, kind="stable")
        counts = np.bincount(own)
        firsts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        ranks = np.empty(len(rows), np.int64)
        ranks[by_stratum] = np.arange(len(rows)) - firsts[own[by_stratum]]
        # The r-th of a stratum's n rows comes after a share of about r/n of the part.
        place = (ranks + rng.random(len(rows))) / counts[own]
        blocks.append(rows[np.argsort(place, kind="stable")])
    return blocks
