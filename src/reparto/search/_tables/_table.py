"""Table: a data set in memory, as techniques see it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import Matrix, Vector
from reparto.spec import TableFacts


@dataclass(frozen=True)
class Table:
    """A data set.

    Attributes:
        facts: All that is known of it.
        x: Rows by the columns of the facts: numbers as they are, NaN where there is none, a
            category as the place of its level, a date as seconds since 1970. Float64 where it is
            small, float32 where it is large; a csr matrix where most entries are zero.
        y: Float64 of a regression, int32 numbers of classes; None for clustering.
        groups: The number of each row's group; None if rows do not belong together.
        times: When each row was; None if nobody knows.
    """

    facts: TableFacts
    x: Matrix
    y: Vector | None = None
    groups: NDArray[np.int64] | None = None
    times: NDArray[np.float64] | None = None
