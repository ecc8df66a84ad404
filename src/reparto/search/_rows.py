"""Rows, Answer and Layout: what passes between a table, its folds, techniques and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Rows by columns: a float32 or float64 array, or a `scipy.sparse.csr_matrix` of the same.
Matrix = Any
Vector = NDArray[Any]


@dataclass(frozen=True)
class Rows:
    """Some rows of a table. Views of memory that workers share: nobody writes to them.

    Attributes:
        x: Numbers as they are, NaN where there is none; a category is the place of its level.
        y: Float64 of a regression, int32 numbers of classes; None for clustering.
        groups: The number of each row's group, where folds keep groups together.
        newest_first: Whether they are in the order of time, where folds are split by it.
    """

    x: Matrix
    y: Vector | None = None
    groups: Vector | None = None
    newest_first: bool = False

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def head(self, share: float) -> Rows:
        """The first part of them, one row at least: a sample, since rows are laid out so."""
        count = max(1, min(len(self), round(share * len(self))))
        return Rows(
            run_of(self.x, 0, count),
            None if self.y is None else self.y[:count],
            None if self.groups is None else self.groups[:count],
            self.newest_first,
        )


@dataclass(frozen=True)
class Answer:
    """What a model says of some rows.

    Attributes:
        values: Of a regression, ``(rows,)``; of a classification, ``(rows, classes)``, the
            greater the likelier; of a clustering, the int number of each row's cluster.
        are_probabilities: Whether the values of a classification are, and add up to one.
    """

    values: Vector
    are_probabilities: bool = False

    @property
    def labels(self) -> Vector:
        """Of a classification, the likeliest class of each row; else the values."""
        return np.argmax(self.values, axis=1) if self.values.ndim == 2 else self.values


@dataclass(frozen=True)
class Window:
    """A run of rows of the laid-out table."""

    start: int
    stop: int


@dataclass(frozen=True)
class FoldWindows:
    """Where a fold is trained and where it is tested, in the laid-out table."""

    train: Window
    test: Window


@dataclass(frozen=True)
class Layout:
    """How rows lie in the shared memory, so that each fold is a view and nothing is copied.

    With K folds, rows lie as f0 f1 … fK-1 f0 f1 … fK-2, so what fold k is trained on is one run of
    rows, from f(k+1) to f(k-1)::

        f0 f1 f2 f0 f1        fold 0 is tested on f0 and trained on f1 f2
           └─┬─┘              fold 1 is tested on f1 and trained on f2 f0, …

    Rows of a fold are in an order of which each beginning is a sample, stratified if folds are.

    Attributes:
        order: For each laid-out row, its number in the table; rows occur once or twice.
        folds: In order.
        all: A run of rows where each row occurs once.
        how: For people: ``5 stratified folds``.
        notes: For people.
        keeps_groups: Whether no group is in two folds.
        newest_first: Whether rows are in the order of time, and a fold is tested on later ones.
    """

    order: NDArray[np.int64]
    folds: tuple[FoldWindows, ...]
    all: Window
    how: str = ""
    notes: tuple[str, ...] = ()
    keeps_groups: bool = False
    newest_first: bool = False


def run_of(x: Matrix, start: int, stop: int) -> Matrix:
    """Rows that follow each other, as a view; scipy would copy those of a csr matrix."""
    if isinstance(x, np.ndarray):
        return x[start:stop]
    first, last = int(x.indptr[start]), int(x.indptr[stop])
    shape = (stop - start, x.shape[1])
    return csr_of(x.data[first:last], x.indices[first:last], x.indptr[start : stop + 1], shape)


def csr_of(data: Vector, indices: Vector, indptr: Vector, shape: tuple[int, int]) -> Matrix:
    """A csr matrix of these arrays, which are not copied, but for the short `indptr`."""
    from scipy import sparse

    count = len(data)
    own = indptr - indptr[0]
    if count <= np.iinfo(np.int32).max and indices.dtype == np.int32:
        own = own.astype(np.int32)
    # Set one by one, since the constructor copies what is a small part of a larger array; and
    # said to be sorted, since scipy would otherwise sort in place, where nobody can write.
    made = sparse.csr_matrix(shape, dtype=data.dtype)
    made.data, made.indices, made.indptr = data, indices, own
    made.has_sorted_indices = made.has_canonical_format = True
    return made
