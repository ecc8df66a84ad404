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
    """

    x: Matrix
    y: Vector | None = None

    def __len__(self) -> int:
        return int(self.x.shape[0])

    def head(self, share: float) -> Rows:
        """The first part of them, one row at least: a sample, since rows are laid out so."""
        count = max(1, min(len(self), round(share * len(self))))
        return Rows(self.x[:count], None if self.y is None else self.y[:count])


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
    """

    order: NDArray[np.int64]
    folds: tuple[FoldWindows, ...]
    all: Window
    how: str = ""
    notes: tuple[str, ...] = ()
