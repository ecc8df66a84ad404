"""A table of a file whose rows have a value for each column: surveyed, decided, filled in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search import _memory
from reparto.search._tables._arrays import missing
from reparto.search._tables._columns import Decided, decide, is_row_name
from reparto.search._tables._digest import digest_of
from reparto.search._tables._encode import encoder_of
from reparto.search._tables._forms import ISO_FORM, spelled
from reparto.search._tables._roles import Roles, groups_of, roles_of, time_column
from reparto.search._tables._size import Draw, Size, coarse, dtype_of, size_of, time_of
from reparto.search._tables._source import Batch, Source
from reparto.search._tables._survey import Survey, survey_of
from reparto.search._tables._table import Table
from reparto.search._tables._target import Target, decide_target
from reparto.spec import SearchColumn, SearchRequest, TableFacts


def dense_table(source: Source, request: SearchRequest) -> Table:
    """Read a table.

    Raises:
        UsageError: If it cannot be, with what to do next.
    """
    roles = roles_of(source, request)
    counted = {it for it in source.names if it == roles.target or _may_number(source, it)}
    survey = survey_of(source, counted, _memory.free_bytes())
    _refuse_small(source, survey.num_rows)
    notes = [*source.notes, *roles.notes]
    target, decided = _decided(source, survey, roles, request)
    notes += decided.told
    if not decided.columns:
        raise UsageError(
            f"{source.path}: no column is left to learn from; " + "; ".join(decided.told),
            remedy="give a table with more columns, or another --target",
        )
    present = survey.num_rows
    if target is not None:
        present -= survey.columns[roles.target].num_missing
    width = len(decided.columns) + (target is not None)
    size = size_of(present, width, request.rows, str(source.path), time_of(request))
    notes += size.notes
    filled = _fill(source, survey, decided.columns, target, roles, size, request.seed)
    return _table(source, survey, decided.columns, target, roles, filled, notes)


def _may_number(source: Source, name: str) -> bool:
    return is_row_name(name) or name in source.blank or _may_count(source, name)


def _may_count(source: Source, name: str) -> bool:
    """Whether it is the first column of several, and nobody says what it is."""
    return not source.has_names and name == source.names[0] and len(source.names) > 3


def _refuse_small(source: Source, num_rows: int) -> None:
    if not num_rows:
        lines = "a line of names, and no rows" if source.has_names else "no rows"
        raise UsageError(f"{source.path} has {lines}", remedy="give a table with rows")
    if num_rows == 1:
        raise UsageError(
            f"{source.path} has a single row, which cannot be both learned from and tested on",
            remedy="give more rows",
        )


def _decided(
    source: Source, survey: Survey, roles: Roles, request: SearchRequest
) -> tuple[Target | None, Decided]:
    decided = Decided()
    dialect = getattr(source, "dialect", None)
    comma = dialect is None or dialect.delimiter == ","
    if dialect is not None and dialect.decimal == ".":  # fractions of other columns have a point
        comma |= any(it.kind == "number" and not it.is_whole for it in survey.columns.values())
    for name in source.names:
        if name in roles.others:
            continue
        own = survey.columns[name]
        # Without a name it numbers the rows if it counts them; in order of the class, it tells it.
        counts = own.kind == "number" and own.high - own.low == survey.num_rows - 1
        decide(
            own,
            survey.num_rows,
            decided,
            levels=source.levels.get(name, ()),
            numbers_rows=_may_number(source, name) and (counts or not _may_count(source, name)),
            comma_separates=comma,
        )
    target = None
    if roles.target and request.domain != "clustering":
        own = survey.columns[roles.target]
        target = decide_target(
            own, request.domain, source.path, levels=source.levels.get(roles.target, ())
        )
        decided.notes.insert(0, target.why)
    return target, decided


@dataclass
class _Filled:
    """What was read of the rows that are used."""

    x: NDArray[Any]
    y: NDArray[np.float64]
    times: NDArray[np.float64]
    groups: list[Batch] = field(default_factory=list)
    num_lost: int = 0


def _fill(
    source: Source,
    survey: Survey,
    columns: list[SearchColumn],
    target: Target | None,
    roles: Roles,
    size: Size,
    seed: int,
) -> _Filled:
    """Read the rows once more, and put what is used where it belongs."""
    absent = survey.columns[roles.target].num_missing if target is not None else 0
    draw = Draw(size.num_rows, survey.num_rows - absent, seed)
    encoders = [(column.name, encoder_of(column)) for column in columns]
    answer = None if target is None else encoder_of(target.column)
    when = time_column(survey.columns[roles.time]) if roles.time else None
    clock = None if when is None else encoder_of(when)
    filled = _Filled(
        np.empty((size.num_rows, len(columns)), size.dtype),
        np.empty(size.num_rows if answer else 0),
        np.empty(size.num_rows if clock else 0),
    )
    start = 0
    for batch in survey.chunks(source):
        by_name = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows = np.arange(batch.num_rows)
        if answer is not None and absent:
            rows = rows[~missing(by_name[roles.target])]
        chosen = draw.of(rows)
        if not len(chosen):
            continue
        part = None if len(chosen) == batch.num_rows else chosen
        stop = start + len(chosen)
        for place, (name, encode) in enumerate(encoders):
            filled.x[start:stop, place] = _taken(encode(by_name[name]), part)
        if answer is not None:
            filled.y[start:stop] = _taken(answer(by_name[roles.target]), part)
        if clock is not None:
            filled.times[start:stop] = _taken(clock(by_name[roles.time]), part)
        if roles.groups:
            own = by_name[roles.groups]
            filled.groups.append(own if part is None else own.take(_indices(part)))
        start = stop
    assert start == size.num_rows, f"{start} rows were read, not {size.num_rows}"
    return filled


def _taken(values: NDArray[Any], part: NDArray[np.int64] | None) -> NDArray[Any]:
    return values if part is None else values[part]


def _indices(part: NDArray[np.int64]) -> Any:
    import pyarrow

    return pyarrow.array(part)


def _table(
    source: Source,
    survey: Survey,
    columns: list[SearchColumn],
    target: Target | None,
    roles: Roles,
    filled: _Filled,
    notes: list[str],
) -> Table:
    absent = survey.columns[roles.target].num_missing if target is not None else 0
    groups = groups_of(filled.groups, notes, roles.groups) if roles.groups else None
    x, y, times = filled.x, filled.y if target else None, filled.times if roles.time else None
    keep = np.ones(len(x), bool)
    if y is not None:
        keep &= ~np.isnan(y)
        absent += int((~keep).sum())
        if absent:
            notes.append(without(absent, roles.target))
    if times is not None and np.isnan(times[keep]).any():
        count = int(np.isnan(times[keep]).sum())
        notes.append(without(count, roles.time))
        keep &= ~np.isnan(times)
    if not keep.all():
        x = x[keep]
        y, times = (None if it is None else it[keep] for it in (y, times))
        groups = None if groups is None else groups[keep]
    notes += coarse(columns, x)
    return finished_table(
        TableFacts(
            path=str(source.path),
            format=source.format,
            num_rows_in_file=survey.num_rows,
            num_columns_in_file=len(source.names),
            groups=roles.groups,
            time=roles.time,
        ),
        columns,
        target,
        (x, y, groups, times),
        notes,
    )


def without(count: int, name: str) -> str:
    """That so many rows were left out, since they have no value of a column."""
    return f"left out: {count} row{'s' * (count != 1)} without a value of '{name}'"


def finished_table(
    facts: TableFacts,
    columns: list[SearchColumn],
    target: Target | None,
    values: tuple[Any, Any, Any, Any],
    notes: list[str],
) -> Table:
    """The table, with all that is known of it.

    Args:
        facts: What is known already.
        columns: That techniques see.
        target: What is to be foretold.
        values: The rows, their targets as places of classes or numbers, groups and times.
        notes: For people.

    Raises:
        UsageError: If too little is left of it.
    """
    x, y, groups, times = values
    classes: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    if target is not None and target.classes:
        y, classes, counts = _used_classes(facts.path, y, target, notes)
    if x.shape[0] < 2:
        raise UsageError(
            f"{facts.path}: {x.shape[0]} rows are left to learn from: " + "; ".join(notes),
            remedy="give more rows, or other columns",
        )
    if isinstance(x, np.ndarray):
        lacking = _num_missing(x)
        columns = [
            dataclasses.replace(column, num_missing=count)
            for column, count in zip(columns, lacking, strict=True)
        ]
    facts = dataclasses.replace(
        facts,
        num_rows=int(x.shape[0]),
        columns=tuple(columns),
        target="" if target is None else target.column.name,
        target_form="" if target is None else target.column.form,
        domain="clustering" if target is None else target.domain,
        classes=classes,
        class_counts=counts,
        is_sparse=not isinstance(x, np.ndarray),
        digest=digest_of(columns, classes, x, (y, groups, times)),
        notes=tuple(notes),
    )
    return Table(facts, x, y, groups, times)


def _num_missing(x: NDArray[Any]) -> list[int]:
    step = max(1, (16 << 20) // max(1, x.itemsize * x.shape[1]))
    total = np.zeros(x.shape[1], np.int64)
    for start in range(0, len(x), step):
        total += np.isnan(x[start : start + step]).sum(axis=0)
    return [int(count) for count in total]


def _used_classes(
    path: str, y: NDArray[np.float64], target: Target, notes: list[str]
) -> tuple[NDArray[np.int32], tuple[str, ...], tuple[int, ...]]:
    """Classes of which there are rows, numbered anew if others were dropped."""
    places = y.astype(np.int32)
    counts = np.bincount(places, minlength=len(target.classes))
    used = np.flatnonzero(counts)
    if len(used) < 2:
        raise UsageError(
            f"{path}: of the rows that are used, all are of one class: nothing can be learned",
            remedy="give rows of another class too, or more of them with --rows",
        )
    if len(used) < len(counts):
        lost = [target.classes[it] for it in np.flatnonzero(counts == 0)]
        notes.append(f"no row that is used is of the class {', '.join(lost[:5])}")
        numbers = np.cumsum(counts > 0) - 1
        places = numbers[places].astype(np.int32)
    classes = tuple(target.classes[it] for it in used)
    if target.domain == "binary" and len(classes) != 2:
        raise UsageError(
            f"{path}: {len(classes)} classes are left of two", remedy="give more rows"
        )
    return places, classes, tuple(int(counts[it]) for it in used)


def dense_rows(source: Source, facts: TableFacts, *, with_target: bool) -> Iterator[Any]:
    """Chunks of rows of a known table: ``(x, y)``, the target None if it is not asked for.

    Raises:
        UsageError: If a row's target is missing or unknown.
    """
    columns = list(facts.columns)
    target = SearchColumn(name=facts.target, form=facts.target_form)
    if facts.is_classification:
        target = dataclasses.replace(target, kind="category", levels=facts.classes)
    elif "%" in facts.target_form or facts.target_form == ISO_FORM:
        target = dataclasses.replace(target, kind="date")
    encoders = [(column.name, encoder_of(column)) for column in columns]
    answer = encoder_of(target) if with_target else None
    dtype = dtype_of(facts.num_rows, len(columns) + bool(facts.target))
    seen = 0
    for batch in source.chunks():
        by_name = dict(zip(batch.schema.names, batch.columns, strict=True))
        x = np.empty((batch.num_rows, len(columns)), dtype)
        for place, (name, encode) in enumerate(encoders):
            x[:, place] = encode(by_name[name])
        y = None
        if answer is not None:
            y = answer(by_name[facts.target])
            bad = np.flatnonzero(np.isnan(y))
            if len(bad):
                value = by_name[facts.target][int(bad[0])].as_py()
                raise unknown_target(source, facts, seen + int(bad[0]), value)
        seen += batch.num_rows
        yield x, y


def unknown_target(source: Any, facts: TableFacts, row: int, value: Any) -> UsageError:
    """That a row cannot be tested: its target is missing, or of no class that is known."""
    told = spelled(value) if isinstance(value, float) else str(value or "")
    what = f"'{facts.target}' is '{told}'" if told else f"'{facts.target}' has no value"
    if told and facts.is_classification:
        what += f", which is none of the classes {', '.join(facts.classes[:8])}"
    return UsageError(
        f"{source.path}, row {row + 1}: {what}",
        remedy="correct the row or leave it out: it cannot be tested",
    )
