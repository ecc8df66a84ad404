"""Folds on a cluster: each row gets one, by a seeded hash, the same for every candidate.

Of each class, rows are numbered in the order of their hash, and dealt out in turn; a class of
very many rows is first cut into heaps, so that no task has to sort them all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reparto.errors import UsageError
from reparto.search._folds import two_splits
from reparto.search._spark._read import Frame
from reparto.search._spark._typed import GROUP, LABEL, ROW, TIME
from reparto.spec import SearchRequest, TableFacts

FOLD, DRAW = "fold", "draw"
#: Rows of a class that one task sorts.
_HEAP = 100_000
#: With more rows than that a single split says enough.
_MANY_ROWS = 100_000
#: A fold costs seconds on a cluster, also where data are small.
_FOLDS = 3
#: A single split is tested on one row in so many.
_PARTS = 5


@dataclass(frozen=True)
class Split:
    """Which rows a fold is trained on, and on which it is tested.

    Attributes:
        num_folds: Of cross-validation; 1 for a single split.
        by_time: Whether a fold is trained on what comes before, not on all others.
        how: For people.
    """

    num_folds: int
    by_time: bool
    how: str

    def trained(self, frame: Frame, fold: int | None, share: float = 1.0) -> Frame:
        """Rows that a fold is trained on, or a share of them drawn at random; None for all."""
        from pyspark.sql import functions as f

        if fold is not None:
            column = f.col(FOLD)
            frame = frame.where(column <= fold if self.by_time else column != fold)
        return frame if share >= 1.0 else frame.where(f.col(DRAW) < share)

    def tested(self, frame: Frame, fold: int) -> Frame:
        """Rows that a fold is tested on."""
        from pyspark.sql import functions as f

        return frame.where(f.col(FOLD) == (fold + 1 if self.by_time else fold))


def share_out(frame: Frame, facts: TableFacts, request: SearchRequest) -> tuple[Frame, Split]:
    """Give each row its fold, and a number from 0 to 1 by which shares are drawn.

    Raises:
        UsageError: If rows cannot be shared out so.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    how = _chosen(facts, request)
    num_rows = facts.num_rows
    wanted = request.folds or (1 if num_rows >= _MANY_ROWS else _FOLDS)
    folds = min(wanted, num_rows)
    parts = min(_PARTS if folds == 1 else folds, num_rows)
    draw = f.pmod(f.xxhash64(f.lit(request.seed + 1), f.col(ROW)), f.lit(1 << 30)) / (1 << 30)
    frame = frame.withColumn(DRAW, draw)
    if how == "time":
        return _by_time(frame, facts, folds)
    if how == "groups":
        frame = frame.withColumn(GROUP, f.coalesce(GROUP, f.concat(f.lit("row "), ROW)))
        names = frame.select(GROUP).distinct()
        count = int(names.count())
        if count < 2:
            raise UsageError(
                f"all rows are of the same group in {facts.groups}",
                remedy="give another column with --groups, or --split plain",
            )
        parts = min(parts, count)
        folds = min(folds, parts)
        number: Any = f.xxhash64(f.lit(request.seed), f.col(GROUP))
        if count <= _HEAP:  # few of them do not even out by themselves
            names = names.withColumn("number", f.row_number().over(Window.orderBy(number, GROUP)))
            frame, number = frame.join(f.broadcast(names), GROUP), f.col("number")
        told = f"by groups ({facts.groups})"
    else:
        number, told = _dealt(facts, request.seed, how), how
    frame = frame.withColumn(FOLD, f.pmod(number, f.lit(parts)).cast("int")).drop("number")
    if folds == 1:
        said = f"a single {told} split, {round(100 / parts)} % of the rows for testing"
    else:
        said = f"{parts} folds {told}" if told.startswith("by ") else f"{parts} {told} folds"
    return frame, Split(folds, by_time=False, how=said)


def _chosen(facts: TableFacts, request: SearchRequest) -> str:
    if facts.num_rows < 2:
        raise UsageError("one row cannot be shared out", remedy="give more rows")
    how = request.split
    if how == "time" and not facts.time:
        raise UsageError("a split by time needs a time", remedy="name its column: --time-column")
    if how == "groups" and not facts.groups:
        raise UsageError("a split by groups needs groups", remedy="name the column: --groups")
    if how == "stratified" and not facts.is_classification:
        return "plain"
    if how != "auto":
        return how
    if facts.time and facts.groups:
        raise two_splits()
    if facts.time or facts.groups:
        return "time" if facts.time else "groups"
    return "stratified" if facts.is_classification else "plain"


def _dealt(facts: TableFacts, seed: int, how: str) -> Any:
    """The number of each row among its like."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    hashed = f.xxhash64(f.lit(seed), f.col(ROW))
    heaps = max(1, facts.num_rows // _HEAP)
    heap = f.pmod(f.xxhash64(f.lit(seed + 2), f.col(ROW)), f.lit(heaps))
    like = [heap, f.col(LABEL)] if how == "stratified" else [heap]
    place = f.row_number().over(Window.partitionBy(*like).orderBy(hashed, f.col(ROW)))
    # Classes begin at different folds, or the first fold would get the odd row of each.
    return place + heap + (f.col(LABEL).cast("int") if how == "stratified" else f.lit(0))


def _by_time(frame: Frame, facts: TableFacts, folds: int) -> tuple[Frame, Split]:
    """Block 0 is the older half, and is never tested; each fold is tested on the block after."""
    from pyspark.sql import functions as f

    frame = frame.where(f.col(TIME).isNotNull())
    first = 1.0 - 1.0 / _PARTS if folds == 1 else 0.5
    shares = [first + (1.0 - first) * place / folds for place in range(folds)]
    cuts = sorted(set(frame.stat.approxQuantile(TIME, shares, 0.001)))
    ends = frame.agg(f.min(TIME), f.max(TIME)).collect()[0]
    cuts = [cut for cut in cuts if ends[0] < cut <= ends[1]]
    if not cuts:
        raise UsageError(
            f"nearly all rows are of the same time in {facts.time}",
            remedy="give another column with --time, or --split plain",
        )
    block = f.lit(0)
    for cut in cuts:
        block = block + (f.col(TIME) >= cut).cast("int")
    name = f"by time ({facts.time}), tested on what comes after"
    told = f"{len(cuts)} folds {name}" if folds > 1 else f"a single split {name}"
    return frame.withColumn(FOLD, block), Split(len(cuts), by_time=True, how=told)
