"""Rows of a table as MLlib's vectors, in numpy: what `_prepare.py` does on a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.spec import TableFacts

_Floats = NDArray[np.float64]


def slots_of(x: _Floats, facts: TableFacts, prepared: Mapping[str, Any]) -> _Floats:
    """Vectors of some rows.

    Args:
        x: Dense rows, as the facts have their columns; NaN where there is no value.
        facts: Of the table.
        prepared: As `Prepared.state` has it.
    """
    vectors = x if facts.format == "libsvm" else _joined(x, facts, prepared)
    way = prepared["way"]
    if way == "bits":
        return (vectors > 0.0).astype(np.float64)
    if len(prepared["centers"]):
        vectors = vectors - np.asarray(prepared["centers"])
    if len(prepared["scales"]):
        vectors = vectors * np.asarray(prepared["scales"])
    return vectors


def _joined(x: _Floats, facts: TableFacts, prepared: Mapping[str, Any]) -> _Floats:
    fills, lows, way = prepared["fills"], prepared["lows"], prepared["way"]
    parts: list[_Floats] = []
    for place, column in enumerate(facts.columns):
        values, name = x[:, place].astype(np.float64), str(place)
        if column.kind == "category":
            parts.append(_levels(values, len(column.levels), way))
            continue
        values = np.where(np.isfinite(values), values, fills[name])
        if name in lows:
            values = np.maximum(values - lows[name], 0.0)
        parts.append(values[:, None])
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(x), 0))


def _levels(values: _Floats, count: int, way: str) -> _Floats:
    """The place of the level, or a slot for each; the last one for what is missing or unknown."""
    known = np.isfinite(values) & (values >= 0) & (values < count)
    places = np.where(known, values, count)
    if way == "placed":
        return places[:, None]
    each: _Floats = (places[:, None] == np.arange(count + 1)).astype(np.float64)
    return each


def columns_of(slots: _Floats, facts: TableFacts, way: str) -> _Floats:
    """Numbers of slots added up to numbers of columns."""
    if facts.format == "libsvm" or way == "placed":
        return slots
    found, at = [], 0
    for column in facts.columns:
        width = len(column.levels) + 1 if column.kind == "category" else 1
        found.append(slots[at : at + width].sum())
        at += width
    return np.array(found)
