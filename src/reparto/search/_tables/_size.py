"""Size: how many rows of a table are used, which ones, and in what precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search import _memory

#: A table may take this part of the memory that is free: folds are laid out beside it, and
#: candidates need some for themselves.
TABLE_SHARE = 0.2
#: A table that takes more than that as float64 is kept as float32.
WIDE_BYTES = 128 << 20


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


def size_of(num_rows: int, row_values: float, asked: int | None, what: str) -> Size:
    """How much of a table is used.

    Args:
        num_rows: That could be.
        row_values: Numbers in a row, on average.
        asked: So many rows at most, as the user says; None for all that fit.
        what: Of the file, for people.

    Raises:
        UsageError: If what the user asks for does not fit.
    """
    if asked is not None and asked < 1:
        raise UsageError(
            f"--rows {asked}: that is no table", remedy="--rows 1000, or leave it out"
        )
    wanted = num_rows if asked is None else min(asked, num_rows)
    limit = int(TABLE_SHARE * _memory.free_bytes())
    is_small = 8 * wanted * row_values <= min(WIDE_BYTES, limit)
    dtype = np.dtype(np.float64 if is_small else np.float32)
    most = int(limit // max(1.0, dtype.itemsize * row_values))
    notes: list[str] = []
    if wanted <= most:
        if wanted < num_rows:
            notes.append(f"{wanted} of {num_rows} rows are used, drawn at random, as was asked")
        if dtype == np.float32:
            notes.append("the table is large: its values are kept in single precision")
        return Size(wanted, dtype, tuple(notes))
    needs = f"{4 * wanted * row_values / 1e9:.3g} GB"
    free = f"{limit / TABLE_SHARE / 1e9:.3g} GB"
    if asked is not None or most < 100:
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
    return Size(most, np.dtype(np.float32), tuple(notes))


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
