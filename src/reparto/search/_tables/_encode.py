"""Encoder: values of a column, as a file has them, to the numbers that techniques see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._tables._arrays import Floats, floats, kind_of, texts
from reparto.search._tables._forms import number_reader, spelled
from reparto.search._tables._parse import numbers_of, seconds_of
from reparto.spec import SearchColumn

Encoder = Callable[[Any], Floats]


def encoder_of(column: SearchColumn) -> Encoder:
    """What makes numbers of a chunk of this column; NaN where there is no value that is known."""
    if column.kind == "category":
        return category_encoder(column.levels, column.form)
    parse = seconds_of if column.kind == "date" else numbers_of

    def encode(array: Any) -> Floats:
        kind = kind_of(array)
        if kind == "nothing":
            return np.full(len(array), np.nan)
        if kind == "text":
            chunk = texts(array)
            return finite(chunk.mapped(parse(chunk.values, column.form)))
        if kind == "other":
            return np.full(len(array), np.nan)
        return finite(floats(array))

    return encode


def category_encoder(levels: tuple[str, ...], form: str = "") -> Encoder:
    """What makes places of these levels; a number finds its level however it is written."""
    places = {level: float(place) for place, level in enumerate(levels)}
    read = number_reader(form)

    def place_of(value: str) -> float:
        found = places.get(value)
        if found is None:
            number = read(value)
            found = None if number is None else places.get(spelled(number))
        return np.nan if found is None else found

    def encode(array: Any) -> Floats:
        if kind_of(array) in ("nothing", "other"):
            return np.full(len(array), np.nan)
        chunk = texts(array)
        return chunk.mapped([place_of(value) for value in chunk.values])

    return encode


def finite(values: Floats) -> Floats:
    """The same with NaN for what is infinite."""
    bad: NDArray[np.bool_] = np.isinf(values)
    return np.where(bad, np.nan, values) if bad.any() else values
