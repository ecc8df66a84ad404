"""Facts of a table on a cluster: what its columns are, its levels, classes and missing values.

raw frame ── one pass: kinds ──► columns ── one pass: levels ──► facts
          └──────────────────── typed ────────────────────────► frame of numbers
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reparto.errors import UsageError
from reparto.search._spark._read import Raw
from reparto.spec import Domain, SearchColumn, SearchRequest, TableFacts
from reparto.spec._search import ColumnKind

#: What stands in text where there is no value.
MISSING = ("", "na", "n/a", "nan", "null", "none", "?")
#: A column of words has so many different ones at most, or it is text.
MOST_LEVELS = 1000
#: A target has so many classes at most.
MOST_CLASSES = 1000
#: A target of so few whole numbers is of classes.
FEW_CLASSES = 20
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


@dataclass(frozen=True)
class Seen:
    """What one pass over a column has found.

    Attributes:
        name: As the file has it.
        place: In the raw frame: ``r3`` has place 3.
        type: Spark's name of its type.
        there: Rows with a value.
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
        if self.numbers == self.there:
            return "number"
        if self.dates == self.there:
            return "date"
        return "category" if self.distinct <= min(MOST_LEVELS, 0.5 * self.there + 2) else "text"

    @property
    def why(self) -> str:
        """What made us think so."""
        if self.type != "string":
            return f"it is of type {self.type}"
        if self.kind in ("number", "date"):
            return f"all {self.there} values are {self.kind}s"
        return f"it has about {self.distinct} different values"


def cell(place: int, type_: str) -> Any:
    """A column of a raw frame, null where nothing is said."""
    from pyspark.sql import functions as f

    column = f.col(f"r{place}")
    if type_ != "string":
        return column
    return f.when(f.lower(f.trim(column)).isin(*MISSING), None).otherwise(f.trim(column))


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
        if not _is_plain(type_):
            continue
        value, as_number = cell(place, type_), number(place, type_)
        is_text = type_ == "string"
        wanted += [
            f.count(value),
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
        found = [next(cells) for _ in range(7)] if _is_plain(plain[place]) else [0] * 7
        if plain[place] in _NUMBERS:  # what is no finite number is missing
            found[0] = found[1]
        seen.append(Seen(name, place, plain[place], *found))
    return seen, int(row[0]), f"{int(row[1] or 0) & (2**64 - 1):016x}"


def _is_plain(type_: str) -> bool:
    """Whether a column holds one value a row: no array, no struct, no vector, no bytes."""
    return type_ in (*_NUMBERS, "string", "boolean", "date", "timestamp", "timestamp_ntz")


def levels_of(raw: Raw, seen: Sequence[Seen]) -> dict[str, tuple[str, ...]]:
    """Of these columns, the different values as text, in order."""
    from pyspark.sql import functions as f

    if not seen:
        return {}
    sets = [f.collect_set(class_of(one)) for one in seen]
    row = raw.frame.agg(*sets).collect()[0]
    return {one.name: tuple(sorted(found)) for one, found in zip(seen, row, strict=True)}


def table_facts(raw: Raw, request: SearchRequest) -> tuple[TableFacts, list[Seen]]:
    """All facts of a table with columns.

    Returns:
        The facts, and what was seen of each column: those of the facts in their order, then the
        target if there is one.

    Raises:
        UsageError: If there is nothing to learn from it.
    """
    seen, num_rows, digest = look(raw)
    if not num_rows:
        raise UsageError(f"{request.data} has no rows", remedy="give some")
    by_name = {one.name: one for one in seen}
    for option in ("groups", "time"):
        name = getattr(request, option)
        if name and name not in by_name:
            raise UsageError(
                f"{request.data} has no column {name}",
                remedy=f"--{option} is one of {', '.join(list(by_name)[:20])}",
            )
    target = _target(by_name, request, raw)
    notes = list(raw.notes)
    kept = []
    for one in seen:
        why = _useless(one, target, request)
        if why:
            notes.append(f"{one.name} is left out: {why}")
        elif one.name not in (target, request.groups):
            kept.append(one)
    if not kept:
        raise UsageError(
            f"{request.data} has no column to learn from",
            remedy="give columns of numbers or categories beside the target",
        )
    about = by_name.get(target)
    wanted = [one for one in kept if one.kind == "category"]
    levels = levels_of(raw, [*wanted, *([about] if about and _may_be(about) else [])])
    columns = tuple(
        SearchColumn(
            name=one.name,
            kind=one.kind,
            levels=levels.get(one.name, ()),
            num_missing=num_rows - one.there,
            why=one.why,
        )
        for one in kept
    )
    facts = TableFacts(
        path=request.data, format=raw.format, num_rows=num_rows, num_rows_in_file=num_rows,
        columns=columns, target=target, groups=request.groups, time=request.time, digest=digest,
        domain="clustering" if not target else "regression", notes=tuple(notes),
    )  # fmt: skip
    if about is None:
        return facts, kept
    if missing := num_rows - about.there:
        facts = replace(
            facts,
            num_rows=about.there,
            notes=(*facts.notes, f"{missing} rows without {target} are left out"),
        )
    names = in_order(levels.get(target, ()))
    domain = domain_of(about, request.domain, names)
    classes = names if domain in ("binary", "multiclass") else ()
    return replace(facts, domain=domain, classes=classes), [*kept, about]


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Numbers by their value, words by the alphabet."""
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(sorted(names))


def _may_be(target: Seen) -> bool:
    """Whether a target has few enough values that its classes can be looked at."""
    return target.distinct <= 2 * MOST_CLASSES


def domain_of(target: Seen, asked: AskedDomain | None, names: Sequence[str]) -> Domain:
    """What kind of question a target is; `names` are its different values if they are few.

    Raises:
        UsageError: If it is not what was asked for, or there is nothing to tell apart.
    """
    if not target.there:
        raise UsageError(f"{target.name} has no values", remedy="name another target")
    count = len(names) or target.distinct
    if asked == "regression":
        if target.kind in ("category", "text"):
            raise UsageError(
                f"{target.name} is no number, so it cannot be a regression",
                remedy="--domain multiclass, or another target",
            )
        return "regression"
    if asked is None and target.kind in ("number", "date"):
        is_classes = target.kind == "number" and target.whole == target.there
        if not is_classes or count > FEW_CLASSES:
            return "regression"
    if count < 2:
        raise UsageError(
            f"{target.name} is the same in all rows: there is nothing to learn",
            remedy="name another target",
        )
    if count > MOST_CLASSES:
        raise UsageError(
            f"{target.name} has about {count} different values, too many for classes",
            remedy="--domain regression if it is a number, or another target",
        )
    if asked == "binary" and count != 2:
        raise UsageError(
            f"{target.name} has {count} classes, not two", remedy="--domain multiclass"
        )
    return asked if asked in ("binary", "multiclass") else "binary" if count == 2 else "multiclass"


def _target(by_name: Mapping[str, Seen], request: SearchRequest, raw: Raw) -> str:
    if request.domain == "clustering":
        return ""
    name = request.target or raw.names[-1]
    if name not in by_name:
        raise UsageError(
            f"{request.data} has no column {name}",
            remedy=f"--target is one of {', '.join(list(by_name)[:20])}",
        )
    return name


def _useless(one: Seen, target: str, request: SearchRequest) -> str:
    if one.name in (target, request.groups, request.time):
        return ""
    if not _is_plain(one.type):
        return f"its type {one.type} is none that techniques take"
    if not one.there:
        return "it has no values"
    if one.kind == "text":
        return f"it is text with about {one.distinct} different values"
    if one.distinct <= 1 and (one.kind != "number" or one.low == one.high):
        return "it is the same in all rows"
    return ""
