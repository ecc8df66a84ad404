"""Digest: of a table's values, to know the same data again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import Matrix
from reparto.spec import SearchColumn

_PART = 1 << 24


def digest_of(
    columns: Sequence[SearchColumn],
    classes: Sequence[str],
    x: Matrix,
    others: Sequence[NDArray[Any] | None],
) -> str:
    """32 letters that are the same if columns, classes and all values are."""
    found = hashlib.blake2b(digest_size=16)
    names = [(column.name, column.kind, column.levels) for column in columns]
    found.update(repr((names, list(classes), tuple(x.shape))).encode())
    parts = [x] if isinstance(x, np.ndarray) else [x.data, x.indices, x.indptr]
    for part in [*parts, *others]:
        if part is None:
            found.update(b"none")
            continue
        flat = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        found.update(f"{part.dtype.str}{part.shape}".encode())
        for start in range(0, len(flat), _PART):
            found.update(flat[start : start + _PART].data)
    return found.hexdigest()
