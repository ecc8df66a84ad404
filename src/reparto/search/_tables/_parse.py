"""Many texts to numbers at once; those that are written in an odd way, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from reparto.search._tables._arrays import Floats
from reparto.search._tables._forms import (
    COMMA_FORM,
    ISO_FORM,
    POINT_FORM,
    Reader,
    date_reader,
    number_reader,
)
from reparto.search._tables._text import imported

#: With fewer than that it is as fast to read them one by one.
_FEW = 1000
#: What can be read at once, and what of it has no meaning.
_PATTERNS = {
    "": (r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$", ""),
    POINT_FORM: (r"^[+-]?\d{1,3}(,\d{3})*(\.\d+)?$", ","),
    COMMA_FORM: (r"^[+-]?\d{1,3}(\.\d{3})*(,\d+)?$", "."),
}


def numbers_of(values: list[str], form: str) -> list[float]:
    """Numbers that are written so; NaN for what is none."""
    read = number_reader(form)
    if len(values) < _FEW or form not in _PATTERNS:
        return [_or_nan(read, value) for value in values]
    pyarrow = imported()
    compute = pyarrow.compute
    pattern, nothing = _PATTERNS[form]
    texts = pyarrow.array(values, pyarrow.string())
    fits = compute.match_substring_regex(texts, pattern)
    bare = compute.replace_substring(texts, nothing, "") if nothing else texts
    if form == COMMA_FORM:
        bare = compute.replace_substring(bare, ",", ".")
    bare = compute.replace_substring_regex(bare, r"^\+", "")
    found = compute.if_else(fits, bare, None).cast(pyarrow.float64())
    return _with_others(found, values, read)


def seconds_of(values: list[str], form: str) -> list[float]:
    """Seconds since 1970 of dates that are written so; NaN for what is none."""
    read = date_reader(form)
    if len(values) < _FEW:
        return [_or_nan(read, value) for value in values]
    pyarrow = imported()
    texts = pyarrow.array(values, pyarrow.string())
    if form == ISO_FORM:
        pattern = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?$"
        fits = pyarrow.compute.match_substring_regex(texts, pattern)
        try:
            found = pyarrow.compute.if_else(fits, texts, None).cast(pyarrow.timestamp("us"))
        except pyarrow.ArrowInvalid:  # the 31st of February
            return [_or_nan(read, value) for value in values]
    else:
        found = pyarrow.compute.strptime(texts, format=form, unit="us", error_is_null=True)
    micros = found.cast(pyarrow.int64()).cast(pyarrow.float64(), safe=False)
    return _with_others(pyarrow.compute.divide(micros, 1e6), values, read)


def _with_others(found: Any, values: list[str], read: Reader) -> list[float]:
    """What was found, and the others read one by one."""
    numbers: Floats = np.array(found.to_numpy(zero_copy_only=False))
    for place in np.flatnonzero(np.isnan(numbers)).tolist():
        numbers[place] = _or_nan(read, values[place])
    listed: list[float] = numbers.tolist()
    return listed


def _or_nan(read: Reader, value: str) -> float:
    number = read(value)
    return np.nan if number is None else number
