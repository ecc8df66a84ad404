"""A look at raw columns: what they hold, found by going over all rows once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reparto.search._spark._read import Raw
from reparto.search._tables._columns import level_order
from reparto.search._tables._forms import MISSING, MISSING_NUMBER
from reparto.spec._search import ColumnKind

#: A column of words has so many different ones at most, or it is left out.
MOST_LEVELS = 1000
#: Texts of which so many are different say which row it is, and nothing of others.
_UNIQUE_SHARE, _UNIQUE_ROWS = 0.9, 20
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


@dataclass(frozen=True)
class Seen:
    """What one pass over a column has found.

    Attributes:
        name: As the file has it.
        place: In the raw frame: ``r3`` has place 3.
        type: Spark's name of its type.
        there: Rows with a value.
        words: Of these, those that are no word for a missing number: ``none``, ``-``.
        numbers: Of these, those that are numbers.
        dates: Of these, those that are dates.
        whole: Of these, those that are whole numbers.
        distinct: Different values, about.
        low: The least number.
        high: The greatest number.
    """

    name: str
    place: int
    type: str
    there: int
    words: int
    numbers: int
    dates: int
    whole: int
    distinct: int
    low: float | None
    high: float | None

    @property
    def kind(self) -> ColumnKind:
        """What it is, by its type and its values."""
        if self.type in ("date", "timestamp", "timestamp_ntz"):
            return "date"
        if self.type == "boolean":
            return "category"
        if self.numbers and self.numbers == self.words:
            return "number"
        if self.dates and self.dates == self.words:
            return "date"
        many = self.distinct > _UNIQUE_SHARE * self.there and self.there >= _UNIQUE_ROWS
        return "text" if many or self.distinct > MOST_LEVELS else "category"

    @property
    def known(self) -> int:
        """Rows with a value of its kind."""
        return {"number": self.numbers, "date": self.dates or self.there}.get(
            self.kind, self.there
        )

    @property
    def why(self) -> str:
        """What made us think so."""
        if self.type != "string":
            return f"it is of type {self.type}"
        if self.kind in ("number", "date"):
            return f"all values are {self.kind}s"
        return f"it has about {self.distinct} different values"


def cell(place: int, type_: str) -> Any:
    """A column of a raw frame, null where nothing is said."""
    from pyspark.sql import functions as f

    column = f.col(f"r{place}")
    if type_ != "string":
        return column
    return f.when(f.trim(column).isin(*MISSING), None).otherwise(f.trim(column))


def number(place: int, type_: str) -> Any:
    """A column as a number, null where it is none or is infinite."""
    from pyspark.sql import functions as f

    value = cell(place, type_).try_cast("double")
    return f.when(f.isnan(value) | (f.abs(value) == math.inf), None).otherwise(value)


def word(column: Any, *, is_number: bool) -> Any:
    """What a class is called: text as it is, and numbers so that 1 and 1.0 are the same."""
    from pyspark.sql import functions as f

    if not is_number:
        return column.cast("string")
    whole = (column == f.floor(column)) & (f.abs(column) < 1e15)
    return f.when(whole, column.cast("bigint").cast("string")).otherwise(column.cast("string"))


def class_of(about: Seen) -> Any:
    """The class of each row, as text."""
    if about.kind == "number":
        return word(number(about.place, about.type), is_number=True)
    return word(cell(about.place, about.type), is_number=False)


def seconds(place: int, type_: str) -> Any:
    """A column as seconds since 1970, null where it is no date."""
    column = cell(place, type_)
    return column.try_cast("timestamp").try_cast("double")


def look(raw: Raw) -> tuple[list[Seen], int, str]:
    """Go over the rows once: what columns hold, how many rows, and a digest of them."""
    from pyspark.sql import functions as f

    types = {field.name: field.dataType.simpleString() for field in raw.frame.schema.fields}
    wanted: list[Any] = [
        f.count(f.lit(1)),
        f.sum(f.xxhash64(*raw.frame.columns).cast("decimal(38,0)")),
    ]
    plain = []
    for place in range(len(raw.names)):
        type_ = types[f"r{place}"].partition("(")[0]
        plain.append(type_)
        if not is_plain(type_):
            continue
        value, as_number = cell(place, type_), number(place, type_)
        is_text = type_ == "string"
        wanted += [
            f.count(value),
            f.count(f.when(~f.lower(value).isin(*MISSING_NUMBER), 1)) if is_text
            else f.count(value),
            f.count(as_number) if is_text or type_ in _NUMBERS else f.lit(0),
            f.count(seconds(place, type_)) if is_text else f.lit(0),
            f.count(f.when(as_number == f.floor(as_number), 1)) if is_text or type_ in _NUMBERS
            else f.lit(0),
            f.approx_count_distinct(value),
            f.min(as_number) if is_text or type_ in _NUMBERS else f.lit(None),
            f.max(as_number) if is_text or type_ in _NUMBERS else f.lit(None),
        ]  # fmt: skip
    row = raw.frame.agg(*wanted).collect()[0]
    cells = iter(row[2:])
    seen = []
    for place, name in enumerate(raw.names):
        found = [next(cells) for _ in range(8)] if is_plain(plain[place]) else [0] * 8
        if plain[place] in _NUMBERS:  # what is no finite number is missing
            found[0] = found[1] = found[2]
        seen.append(Seen(name, place, plain[place], *found))
    return seen, int(row[0]), f"{int(row[1] or 0) & (2**64 - 1):016x}"


def is_plain(type_: str) -> bool:
    """Whether a column holds one value a row: no array, no struct, no vector, no bytes."""
    return type_ in (*_NUMBERS, "string", "boolean", "date", "timestamp", "timestamp_ntz")


def levels_of(raw: Raw, seen: Sequence[Seen]) -> dict[str, tuple[str, ...]]:
    """Of these columns, the different values as text, in order."""
    from pyspark.sql import functions as f

    if not seen:
        return {}
    sets = [f.collect_set(class_of(one)) for one in seen]
    row = raw.frame.agg(*sets).collect()[0]
    return {
        one.name: tuple(sorted(found, key=level_order))
        for one, found in zip(seen, row, strict=True)
    }
