"""Survey: what is in each column of a table, gathered chunk by chunk before all is decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reparto.errors import UsageError
from reparto.search._tables._arrays import Kind, Texts, floats, kind_of, texts
from reparto.search._tables._source import Batch, ReadAgain, Source

#: With more different values than that a column's values are counted no more.
MOST_VALUES = 100_000
#: Chunks are kept, and the file is not read a second time, if they take so much at most.
KEPT_BYTES = 1 << 30


@dataclass
class ColumnSurvey:
    """What is known of a column.

    Attributes:
        name: Which one.
        is_counted: Whether its numbers are counted, each by itself.
        kind: What it holds.
        num_missing: Rows without a value.
        num_infinite: Rows whose number is infinite; they count as missing too.
        low: The least number; infinite if there is none.
        high: The greatest number.
        is_whole: Whether all numbers are whole.
        counts: How often each value occurs, of texts and of numbers that are counted.
        is_uncounted: Whether there were too many values to go on with that.
        is_unique: Of whole numbers: whether none occurs twice, as far as chunks can tell.
    """

    name: str
    is_counted: bool = False
    kind: Kind = "nothing"
    num_missing: int = 0
    num_infinite: int = 0
    low: float = np.inf
    high: float = -np.inf
    is_whole: bool = True
    counts: Counter[Any] = field(default_factory=Counter)
    is_uncounted: bool = False
    is_unique: bool = True

    def add(self, array: Any) -> None:
        """Look at a chunk of it."""
        kind = kind_of(array)
        if kind == "nothing" or array.null_count == len(array):
            self.num_missing += len(array)
            self.kind = kind if self.kind == "nothing" and kind != "nothing" else self.kind
            return
        self.kind = kind
        if kind == "text":
            self._add_texts(texts(array))
        elif kind in ("number", "date"):
            self._add_floats(floats(array))

    def _add_texts(self, chunk: Texts) -> None:
        counts = np.bincount(chunk.places + 1, minlength=len(chunk.values) + 1)
        self.num_missing += int(counts[0])
        if not self.is_uncounted:
            for value, count in zip(chunk.values, counts[1:].tolist(), strict=True):
                if count:
                    self.counts[value] += count
            self.is_uncounted = len(self.counts) > MOST_VALUES

    def _add_floats(self, values: np.ndarray[Any, Any]) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            self.num_infinite += int(np.isinf(values).sum())
            values = values[finite]
            self.num_missing += len(finite) - len(values)
        if not len(values):
            return
        self.low, self.high = min(self.low, values.min()), max(self.high, values.max())
        self.is_whole = self.is_whole and bool((values == np.floor(values)).all())
        if self.is_counted:
            distinct, counts = np.unique(values, return_counts=True)
            self.is_unique = self.is_unique and len(distinct) == len(values)
            if not self.is_uncounted:
                for value, count in zip(distinct.tolist(), counts.tolist(), strict=True):
                    self.counts[value] += count
                self.is_uncounted = len(self.counts) > MOST_VALUES


@dataclass
class Survey:
    """What is known of a table.

    Attributes:
        num_rows: That there are.
        columns: By name.
        kept: All chunks; None if they take too much memory, and have to be read again.
    """

    num_rows: int
    columns: dict[str, ColumnSurvey]
    kept: list[Batch] | None

    def chunks(self, source: Source) -> Iterator[Batch]:
        """The rows once more."""
        return iter(self.kept) if self.kept is not None else source.chunks()


def survey_of(source: Source, counted: Iterable[str], free: int) -> Survey:
    """Read a table once.

    Args:
        source: Which one.
        counted: Columns whose numbers are counted.
        free: Bytes of memory.

    Raises:
        UsageError: If it cannot be read.
    """
    names = set(counted)
    for _ in range(len(source.names) + 20):
        try:
            return _read(source, names, min(KEPT_BYTES, free // 8))
        except ReadAgain as why:
            last = why.__cause__
    raise UsageError(f"{source.path}: {last}", remedy="save it anew, as CSV or Parquet")


def _read(source: Source, counted: set[str], most_bytes: int) -> Survey:
    columns = {name: ColumnSurvey(name, is_counted=name in counted) for name in source.names}
    kept: list[Batch] | None = []
    num_rows = num_bytes = 0
    for batch in source.chunks():
        num_rows += batch.num_rows
        num_bytes += batch.nbytes
        if num_bytes > most_bytes:
            kept = None
        if kept is not None:
            kept.append(batch)
        for name, array in zip(batch.schema.names, batch.columns, strict=True):
            columns[name].add(array)
    return Survey(num_rows, columns, kept)
