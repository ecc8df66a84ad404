"""How rows are shared out over folds, so that each fold is a view of one copy: `lay_out`.

Rows are dealt out into blocks, which lie one after the other (`Layout` draws it). Only dealing
differs: at random, class by class, group by group, or by time::

    b3 │ b2 │ b1 │ b0            by time, the newest first: b0 is the oldest half of the rows
    ?? └─────┬──────┘            fold 2 is tested on b3 and trained on b2 b1 b0
         ?? └───┬────┘           fold 1 is tested on b2 and trained on b1 b0
             ?? └┬─┘             fold 0 is tested on b1 and trained on b0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search._deal import by_groups, by_strata, scattered, strata_of
from reparto.search._rows import FoldWindows, Layout, Window
from reparto.search._tables._table import Table

SPLITS = ("auto", "plain", "stratified", "groups", "time")
#: With fewer rows than that, more folds are cheap, and one fold's score is mostly luck.
_FEW_ROWS = 500
#: With more rows or cells than that, fewer folds: (rows, cells, folds).
_MANY = ((100_000, 20_000_000, 1), (20_000, 5_000_000, 3))
#: Clusters are judged by how far rows are from each other: a few rows would not show them.
_CLUSTERED_ROWS = 1000
#: Of a search that is short for its table: (cells a second, each counted for every class, folds).
_SHORT = ((100_000, 1), (30_000, 3))
#: A single split is tested on one row in so many.
_PARTS = 5

_Ints = NDArray[np.int64]


def lay_out(table: Table, *, folds: int | None, split: str, seed: int) -> Layout:
    """Share the rows of a table out over folds.

    Args:
        table: Which one.
        folds: How many; 1 for a single split; None to choose by the number of rows.
        split: ``plain``, ``stratified`` (each fold has the same share of each class, or of high
            and low values), ``groups`` (a group is in one fold only), ``time`` (a fold is tested
            on rows after those that it is trained on), or ``auto`` to choose by the data.
        seed: By which rows are dealt out; the same one, the same folds.

    Raises:
        UsageError: If the rows cannot be shared out so.
    """
    if folds is not None and folds < 1:
        raise UsageError(f"{folds} folds cannot be", remedy="1 for a single split, 5 for five")
    how = _chosen(table, split)
    rng = np.random.default_rng(seed)
    if how == "time":
        return _by_time(table, folds, rng)
    notes: list[str] = []
    wanted, most = _num_folds(table, folds, notes), table.x.shape[0]
    if how == "groups":
        most = _num_groups(table)
        _tell_fewer(wanted, most, "groups", notes)
    parts = min(_PARTS if wanted == 1 else wanted, most)
    if how == "groups":
        assert table.groups is not None
        dealt = by_groups(table.groups, strata_of(table), parts, rng)
    else:
        strata = strata_of(table) if how == "stratified" else np.zeros(table.x.shape[0], np.int64)
        if how == "stratified":
            notes += _rare(table, parts, wanted == 1)
        dealt = by_strata(strata, parts, rng)
    blocks = scattered(dealt, parts, strata_of(table), rng)
    told = {"groups": f"by groups ({table.facts.groups})"}.get(how, how)
    layout = _layout(blocks, 1 if wanted == 1 else parts, told, notes)
    return replace(layout, keeps_groups=how == "groups")


def two_splits() -> UsageError:
    """Say that groups and a time were named, and nothing about which of them counts."""
    return UsageError(
        "groups and a time are named, and rows cannot be shared out by both",
        remedy="--split groups keeps groups together; --split time tests on later rows, also of "
        "groups that were trained on",
    )


def folds_in(table: Table, time_s: float) -> int | None:
    """Fewer folds than usual, for a table that so short a time hardly allows to be searched.

    Returns:
        How many; None where there is time for as many as usual.
    """
    usual = _num_folds(table, None, [])
    classes = max(1, len(table.facts.classes)) if table.facts.domain == "multiclass" else 1
    for cells_a_second, few in _SHORT:
        if _num_cells(table) * classes > cells_a_second * time_s and few < usual:
            return few
    return None


def _num_cells(table: Table) -> int:
    """Of a sparse table, those that are kept."""
    return int(table.x.size if isinstance(table.x, np.ndarray) else table.x.nnz)


def _chosen(table: Table, split: str) -> str:
    if split not in SPLITS:
        raise UsageError(f"no split {split!r}", remedy=f"take one of {', '.join(SPLITS)}")
    if table.x.shape[0] < 2:
        raise UsageError("one row cannot be shared out", remedy="give more rows")
    if split == "time" and table.times is None:
        raise UsageError("a split by time needs a time", remedy="name its column: --time-column")
    if split == "groups" and table.groups is None:
        raise UsageError("a split by groups needs groups", remedy="name the column: --groups")
    if split != "auto":
        return split
    if table.times is not None and table.groups is not None:
        raise two_splits()
    if table.times is not None:
        return "time"
    if table.groups is not None:
        return "groups"
    return "stratified" if table.facts.is_classification else "plain"


def _num_folds(table: Table, folds: int | None, notes: list[str]) -> int:
    num_rows = int(table.x.shape[0])
    if folds is not None:
        _tell_fewer(folds, num_rows, "rows", notes)
        return min(folds, num_rows)
    cells = _num_cells(table)
    for rows_at_least, cells_at_least, few in _MANY:
        if num_rows >= rows_at_least or cells >= cells_at_least:
            return few
    # Of a single row R² says nothing.
    chosen = min(10 if num_rows < _FEW_ROWS else 5, max(2, num_rows // 2))
    if table.facts.domain == "clustering":
        chosen = min(chosen, max(2, num_rows // _CLUSTERED_ROWS))
    if table.facts.domain == "binary" and table.y is not None:
        least = int(np.bincount(table.y, minlength=2).min())
        if least >= 2:  # each fold should have a row of either class
            chosen = min(chosen, least)
    return chosen


def _tell_fewer(folds: int, most: int, of: str, notes: list[str]) -> None:
    if folds > most:
        notes.append(f"{most} folds instead of {folds}, since there are but {most} {of}")


def _num_groups(table: Table) -> int:
    assert table.groups is not None
    count = len(np.unique(table.groups))
    if count < 2:
        raise UsageError(
            f"all rows are of the same group in {table.facts.groups}",
            remedy="give another column with --groups, or --split plain",
        )
    return count


def _rare(table: Table, parts: int, is_single: bool) -> list[str]:
    """What is to be known of classes that not every fold can have."""
    if table.y is None or not table.facts.is_classification:
        return []
    notes = []
    counts = np.bincount(table.y, minlength=len(table.facts.classes)).tolist()
    for name, count in zip(table.facts.classes, counts, strict=True):
        if count == 1:
            notes.append(
                f"class {name} has one row, which is either trained on or tested, never both: "
                "give more rows of it, or leave it out"
            )
        elif 0 < count < parts and not is_single:
            notes.append(
                f"class {name} has {count} rows: {parts - count} of {parts} folds are tested "
                "without it"
            )
    return notes if len(notes) <= 5 else [*notes[:4], f"and so with {len(notes) - 4} more classes"]


def _layout(blocks: Sequence[_Ints], folds: int, how: str, notes: Sequence[str]) -> Layout:
    num_rows = sum(map(len, blocks))
    starts = np.concatenate([[0], np.cumsum([len(block) for block in [*blocks, *blocks]])])
    if folds == 1:
        test, train = Window(0, len(blocks[0])), Window(len(blocks[0]), num_rows)
        share = round(100 * len(blocks[0]) / num_rows)
        told = f"a single {how} split, {share} % of the rows for testing"
        return Layout(
            np.concatenate(blocks), (FoldWindows(train, test),), Window(0, num_rows), told,
            tuple(notes),
        )  # fmt: skip
    windows = tuple(
        FoldWindows(
            train=Window(int(starts[k + 1]), int(starts[k + folds])),
            test=Window(int(starts[k]), int(starts[k + 1])),
        )
        for k in range(folds)
    )
    told = f"{folds} folds {how}" if how.startswith("by ") else f"{folds} {how} folds"
    order = np.concatenate([*blocks, *blocks[:-1]])
    return Layout(order, windows, Window(0, num_rows), told, tuple(notes))


def _by_time(table: Table, folds: int | None, rng: np.random.Generator) -> Layout:
    """Blocks by time, the newest first; rows of the same moment stay together."""
    assert table.times is not None
    notes: list[str] = []
    if table.groups is not None:
        notes.append(f"rows of a group ({table.facts.groups}) may be in several folds")
    num_rows = len(table.times)
    wanted = _num_folds(table, folds, notes)
    wanted = min(wanted, 5) if folds is None else wanted
    jitter = rng.permutation(num_rows)  # rows of the same moment are in no order
    newest_first = np.lexsort((jitter, -table.times))
    times = table.times[newest_first]
    changes = np.flatnonzero(times[1:] != times[:-1]) + 1
    if not len(changes):
        raise UsageError(
            f"all rows are of the same time in {table.facts.time}",
            remedy="give another column with --time-column, or --split plain",
        )
    tested = num_rows // (_PARTS if wanted == 1 else 2)
    aims = [round(tested * (k + 1) / wanted) for k in range(wanted)]
    cuts = sorted({int(changes[np.abs(changes - aim).argmin()]) for aim in aims})
    _tell_fewer(wanted, len(cuts), "moments to part at", notes)
    starts = [0, *cuts]
    windows = [
        FoldWindows(train=Window(stop, num_rows), test=Window(start, stop))
        for start, stop in zip(starts, cuts, strict=False)
    ][::-1]
    name = f"by time ({table.facts.time})"
    told = f"{len(windows)} folds {name}" if wanted > 1 else f"a single split {name}"
    told += ", tested on what comes after"
    all_ = Window(0, num_rows)
    return Layout(newest_first, tuple(windows), all_, told, tuple(notes), newest_first=True)
