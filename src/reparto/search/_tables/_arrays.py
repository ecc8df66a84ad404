"""Arrays: a column of a chunk as numbers, or as places of few different texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reparto.search._tables._forms import MISSING
from reparto.search._tables._text import imported

Floats = NDArray[np.float64]
Kind = Literal["number", "text", "date", "nothing", "other"]


@dataclass(frozen=True)
class Texts:
    """A column of texts.

    Attributes:
        values: The different ones, stripped of blanks; some may be the same.
        places: Of each row, the number of its value; -1 where there is none.
    """

    values: list[str]
    places: NDArray[np.int64]

    def mapped(self, numbers: list[float]) -> Floats:
        """Each row's number, given that of each value; NaN where there is no value."""
        return np.array([*numbers, np.nan])[self.places]


def kind_of(array: Any) -> Kind:
    """What a column of a chunk holds, by its type."""
    types = imported().types
    own = array.type
    if types.is_dictionary(own):
        own = own.value_type
    if types.is_null(own):
        return "nothing"
    if types.is_integer(own) or types.is_floating(own) or types.is_decimal(own):
        return "number"
    if types.is_string(own) or types.is_large_string(own) or types.is_boolean(own):
        return "text"
    if types.is_string_view(own):
        return "text"
    if types.is_timestamp(own) or types.is_date(own):
        return "date"
    if types.is_duration(own) or types.is_time(own):
        return "number"
    return "other"


def floats(array: Any) -> Floats:
    """A column of numbers or dates as float64; NaN where there is no value."""
    pyarrow = imported()
    types, compute = pyarrow.types, pyarrow.compute
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    own = array.type
    if types.is_null(own):
        return np.full(len(array), np.nan)
    if types.is_date(own) or types.is_timestamp(own):
        array = compute.divide(
            compute.cast(compute.cast(array, pyarrow.timestamp("us")), pyarrow.int64()).cast(
                pyarrow.float64(), safe=False
            ),
            1e6,
        )
    elif types.is_duration(own) or types.is_time(own):
        unit = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[own.unit]
        whole = pyarrow.int32() if own.bit_width == 32 else pyarrow.int64()
        array = compute.divide(array.cast(whole).cast(pyarrow.float64(), safe=False), unit)
    elif own != pyarrow.float64():
        array = array.cast(pyarrow.float64(), safe=False)
    found: Floats = array.to_numpy(zero_copy_only=False)
    return found


def texts(array: Any) -> Texts:
    """A column of texts, or of what can be written as one."""
    pyarrow = imported()
    if not pyarrow.types.is_dictionary(array.type):
        if pyarrow.types.is_boolean(array.type):
            array = pyarrow.compute.if_else(array, "True", "False")
        array = array.dictionary_encode()
    places = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    values = [_written(value) for value in array.dictionary.to_pylist()]
    lost = [place for place, value in enumerate(values) if value in MISSING]
    if lost:
        places = np.where(np.isin(places, lost), -1, places)
    return Texts(values, places)


def _written(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        from reparto.search._tables._forms import spelled

        return "" if value != value else spelled(value)
    return str(value).strip()


def missing(array: Any) -> NDArray[np.bool_]:
    """Which rows have no value."""
    kind = kind_of(array)
    if kind in ("number", "date", "nothing"):
        found: NDArray[np.bool_] = ~np.isfinite(floats(array))
        return found
    if kind == "text":
        return texts(array).places < 0
    mask: NDArray[np.bool_] = array.is_null().to_numpy(zero_copy_only=False)
    return mask
