"""Size: how many rows of a table are used, which ones, and in what precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search import _memory
from reparto.spec import SearchColumn, SearchRequest

#: A table may take this part of the memory that is free: folds are laid out beside it, and
#: candidates need some for themselves.
TABLE_SHARE = 0.2
#: A table that takes more than that as float64 is kept as float32.
WIDE_BYTES = 128 << 20
#: A search looks at so many values a second, as long as several candidates are to end; and at so
#: many in any case.
VALUES_A_SECOND, FEWEST_VALUES = 300_000, 10_000_000
#: A table is not cut to fewer rows, however many columns it has.
FEWEST_ROWS = 100
#: Of a search that nothing limits, the longest.
OPEN_S = 300.0


@dataclass(frozen=True)
class Size:
    """Of the table in memory.

    Attributes:
        num_rows: That are drawn.
        dtype: Of its values.
        notes: For people.
    """

    num_rows: int
    dtype: np.dtype[Any]
    notes: tuple[str, ...] = ()


def time_of(request: SearchRequest) -> float | None:
    """Seconds that a table is searched for, reading it included; None for as long as it takes."""
    others = request.trials, request.cost, *request.candidates
    is_open = all(it is None for it in others) and request.search != "grid"
    return OPEN_S if request.time_s is None and is_open else request.time_s


def size_of(
    num_rows: int,
    row_values: float,
    asked: int | None,
    what: str,
    time_s: float | None = None,
) -> Size:
    """How much of a table is used.

    Args:
        num_rows: That could be.
        row_values: Numbers in a row, on average.
        asked: So many rows at most, as the user says; None for all that fit, and that there is
            time for.
        what: Of the file, for people.
        time_s: Seconds that it is searched for; None for as long as it takes.

    Raises:
        UsageError: If what the user asks for does not fit.
    """
    if asked is not None and asked < 1:
        raise UsageError(
            f"--rows {asked}: that is no table", remedy="--rows 1000, or leave it out"
        )
    wanted = num_rows if asked is None else min(asked, num_rows)
    notes: list[str] = []
    if asked is None and time_s is not None:
        timely = int(max(FEWEST_VALUES, VALUES_A_SECOND * time_s) // max(1.0, row_values))
        timely = max(FEWEST_ROWS, timely)
        if timely < wanted:
            wanted = timely
            notes.append(
                f"{timely} of {num_rows} rows are used, drawn at random: no more can be searched "
                f"well in {time_s:.0f} s (--time allows for more, --rows N sets the number, "
                "--engine spark uses all)"
            )
    limit = int(TABLE_SHARE * _memory.free_bytes())
    dtype = dtype_of(wanted, row_values)
    if 8 * wanted * row_values > limit:
        dtype = np.dtype(np.float32)
    most = int(limit // max(1.0, dtype.itemsize * row_values))
    if wanted <= most:
        if asked is not None and wanted < num_rows:
            notes.append(f"{wanted} of {num_rows} rows are used, drawn at random, as was asked")
        if dtype == np.float32:
            notes.append("the table is large: its values are kept in single precision")
        return Size(wanted, dtype, tuple(notes))
    needs = f"{4 * wanted * row_values / 1e9:.3g} GB"
    free = f"{limit / TABLE_SHARE / 1e9:.3g} GB"
    if asked is not None or most < FEWEST_ROWS:
        raise UsageError(
            f"{what}: {wanted} rows take {needs} in memory, of which {free} are free, and folds "
            "and candidates need some too",
            remedy=f"--rows {most} at most, fewer columns, a machine with more memory, or "
            "--engine spark",
        )
    notes.append(
        f"{most} of {num_rows} rows are used, drawn at random: all of them take {needs}, and "
        f"{free} of memory are free (--rows N for fewer; --engine spark to use all)"
    )
    return Size(most, np.dtype(np.float32), tuple(notes[-1:]))


def dtype_of(num_rows: int, row_values: float) -> np.dtype[Any]:
    """The precision in which a table of so many values is kept."""
    return np.dtype(np.float64 if 8 * num_rows * row_values <= WIDE_BYTES else np.float32)


def coarse(columns: Sequence[SearchColumn], x: NDArray[Any]) -> list[str]:
    """Of a table in single precision: what is said of columns that lose by it."""
    if x.dtype != np.float32 or not len(x):
        return []
    notes = []
    low, high = np.nanmin(x, axis=0), np.nanmax(x, axis=0)
    for place, column in enumerate(columns):
        step = float(np.spacing(max(abs(low[place]), abs(high[place]))))
        if column.kind != "category" and step > (float(high[place]) - float(low[place])) / 5000:
            notes.append(f"so '{column.name}' is only exact to {step:.3g}")
    return notes


class Draw:
    """Chooses rows at random while they pass by, each with the same chance; order is kept.

    Args:
        wanted: How many.
        of: How many will pass by.
        seed: Of the choice.
    """

    def __init__(self, wanted: int, of: int, seed: int) -> None:
        self._wanted, self._left = min(wanted, of), of
        self._rng = np.random.default_rng([seed, 7])

    def of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the next ones that are chosen."""
        count = len(rows)
        if self._wanted >= self._left:
            self._wanted, self._left = self._wanted - count, self._left - count
            return rows
        others = max(0, self._left - count)
        chosen = int(self._rng.hypergeometric(count, others, self._wanted)) if count else 0
        self._wanted, self._left = self._wanted - chosen, others
        return np.sort(self._rng.choice(rows, chosen, replace=False)) if chosen else rows[:0]
