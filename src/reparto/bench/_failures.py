"""Rows that have no figures, and why."""

from __future__ import annotations

import re

from reparto.bench import _grid
from reparto.bench._cells import Cell
from reparto.errors import RepartoError
from reparto.spec import Measurement, Work

_NO_MEMORY = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|bad_alloc|ALLOC_FAILED"
    r"|unable to (allocate|mmap)",
    re.IGNORECASE,
)
_MOST = 240


def why(error: BaseException) -> str:
    """An exception in one line."""
    if isinstance(error, RepartoError):
        return error.message
    said = " ".join(str(error).split())
    if isinstance(error, MemoryError) or _NO_MEMORY.search(said):
        return f"not enough memory: {said}"[:_MOST]
    return f"{type(error).__name__}: {said}"[:_MOST]


def failed(cell: Cell, failure: str) -> Measurement:
    """The row of a cell that came to nothing."""
    hidden = _grid.hidden_of(cell.model) if cell.source == "grid" else ()
    known = _grid.num_parameters(hidden) if hidden else 0
    return Measurement(
        work=Work(
            suite=cell.suite,
            model=cell.model,
            num_parameters=known or (_grid.cnn_parameters() if cell.source == "cnn" else 0),
            num_samples=0,
            batch_rows=cell.batch_rows,
            data="",
            target_steps=0,
        ),
        hidden=hidden,
        mode=cell.mode,
        form=cell.form,
        device=cell.device,
        dtype=cell.dtype,
        strategy=cell.strategy,
        num_workers=cell.num_workers,
        flags=("failed",),
        failure=failure,
    )
