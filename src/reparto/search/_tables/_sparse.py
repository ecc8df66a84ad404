"""A table that leaves out what is zero: kept so if most of it is zero, else in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search import _memory
from reparto.search._rows import Matrix, Rows
from reparto.search._tables._dense import finished_table, unknown_target, without
from reparto.search._tables._encode import finite
from reparto.search._tables._forms import spelled
from reparto.search._tables._size import Draw, size_of, time_of
from reparto.search._tables._source import SparseChunk, SparseSource, listed
from reparto.search._tables._survey import KEPT_BYTES, ColumnSurvey
from reparto.search._tables._table import Table
from reparto.search._tables._target import Target, column_named, decide_target
from reparto.spec import SearchColumn, SearchRequest, TableFacts

#: A table with a greater share of what is not zero is kept in full; so is one with few values,
#: since more techniques can then be tried.
MOST_FILLED, FEW_VALUES = 0.3, 200_000
#: A value of a csr matrix takes as much as so many of a table in full, of the same precision.
_COST = 2.0
_VALUE_BYTES = 12
#: So many columns are looked at together, in full.
_TOGETHER = 64


@dataclass
class _Counted:
    """What a first look at the file tells, and what was read if that is not too much to keep."""

    num_rows: int = 0
    num_values: int = 0
    width: int = 0
    kept: list[SparseChunk] | None = field(default_factory=list)


def sparse_table(source: SparseSource, request: SearchRequest) -> Table:
    """Read a table.

    Raises:
        UsageError: If it cannot be, with what to do next.
    """
    counted = _counted(source)
    if counted.num_rows < 2:
        what = "a single row" if counted.num_rows else "no rows"
        raise UsageError(f"{source.path} has {what}", remedy="give more rows")
    notes = list(source.notes)
    average = _COST * counted.num_values / counted.num_rows + 1
    path, rows = str(source.path), counted.num_rows
    size = size_of(rows, average, request.rows, path, time_of(request))
    notes += size.notes
    x, label = _drawn(source, counted, size.num_rows, size.dtype, request.seed)
    names = [source.name_of(it) for it in range(x.shape[1])]
    roles = _roles(source, names, request, notes)
    target, y = _target_of(source, x, label, names, roles["target"], request)
    if target is not None:
        notes.append(target.why)
    elif label is not None:
        notes.append("the label at the front of each row is left out")
    facts = TableFacts(
        path=str(source.path),
        format=source.format,
        num_rows_in_file=counted.num_rows,
        num_columns_in_file=counted.width + bool(source.label),
        groups=roles["groups"],
        time=roles["time"],
    )
    groups = _codes(x, names, roles["groups"])
    times = _dense_column(x, names, roles["time"])
    apart = {name for name in roles.values() if name}
    kept = _kept(x, names, apart, source, notes)
    columns = [_column(x, it, names[it], source) for it in kept]
    if not columns:
        raise UsageError(f"{source.path}: no column is left to learn from", remedy="give columns")
    x = _without_others(x, kept)
    keep = np.ones(x.shape[0], bool)
    for values, name in ((y, roles["target"] or source.label), (times, roles["time"])):
        if values is not None and np.isnan(values).any():
            notes.append(without(int(np.isnan(values).sum()), name))
            keep &= ~np.isnan(values)
    if not keep.all():
        x = x[keep]
        y, times = (None if it is None else it[keep] for it in (y, times))
        groups = None if groups is None else groups[keep]
    return finished_table(
        facts, columns, target, (_shaped(x, columns, notes), y, groups, times), notes
    )


def _counted(source: SparseSource) -> _Counted:
    found, most_bytes = _Counted(), min(KEPT_BYTES, _memory.free_bytes() // 8)
    for chunk in source.chunks():
        if found.kept is not None:
            found.kept.append(chunk)
        found.num_rows += chunk.x.shape[0]
        found.num_values += chunk.x.nnz
        found.width = max(found.width, chunk.x.shape[1])
        if _VALUE_BYTES * found.num_values > most_bytes:
            found.kept = None
    return found


def _drawn(
    source: SparseSource, counted: _Counted, num_rows: int, dtype: np.dtype[Any], seed: int
) -> tuple[Matrix, NDArray[np.float64] | None]:
    from scipy import sparse

    draw = Draw(num_rows, counted.num_rows, seed)
    parts, labels = [], []
    for chunk in counted.kept if counted.kept is not None else source.chunks():
        rows = draw.of(np.arange(chunk.x.shape[0]))
        x = chunk.x if len(rows) == chunk.x.shape[0] else chunk.x[rows]
        parts.append(x.astype(dtype, copy=False))
        if chunk.label is not None:
            labels.append(np.asarray(chunk.label, np.float64)[rows])
    counted.kept = None
    return _stacked(parts, counted.width, sparse), np.concatenate(labels) if labels else None


def _stacked(parts: Sequence[Matrix], width: int, sparse: Any) -> Matrix:
    for part in parts:
        part.resize((part.shape[0], width))
    whole = parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")
    whole = sparse.csr_matrix(whole)
    whole.data = finite(whole.data)
    whole.sort_indices()
    return whole


def _roles(
    source: SparseSource, names: list[str], request: SearchRequest, notes: list[str]
) -> dict[str, str]:
    def named(wanted: str, option: str) -> str:
        return column_named(wanted, names, source.path, option) if wanted else ""

    target = request.target
    if source.label:
        if target.lower() in ("", "label", "target", "y", "class", source.label, "0", "-1"):
            target = ""
    elif not target and request.domain != "clustering":
        target = names[-1]
        notes.append(f"no target was named, so '{target}' is foretold, the last column")
    roles = {
        "target": named(target, "--target"),
        "groups": named(request.groups, "--groups"),
        "time": named(request.time, "--time-column"),
    }
    taken = [name for name in roles.values() if name]
    if len(set(taken)) < len(taken) and roles["target"] in (roles["groups"], roles["time"]):
        raise UsageError(
            f"{source.path}: '{roles['target']}' is named twice", remedy="name another column"
        )
    return roles


def _target_of(
    source: SparseSource,
    x: Matrix,
    label: NDArray[np.float64] | None,
    names: list[str],
    name: str,
    request: SearchRequest,
) -> tuple[Target | None, NDArray[np.float64] | None]:
    if request.domain == "clustering":
        return None, None
    values = _dense_column(x, names, name) if name else label
    assert values is not None
    own = name or source.label
    survey = ColumnSurvey(own, is_counted=True, kind="number")
    levels = source.levels.get(own, ())
    survey._add_floats(values)
    if levels:
        survey.kind = "text"
        counts = {levels[int(it)]: count for it, count in survey.counts.items()}
        survey.counts = type(survey.counts)(counts)
    target = decide_target(survey, request.domain, source.path, levels=levels)
    if not target.classes:
        return target, values
    return target, _placed(values, target.classes, levels)


def _placed(
    values: NDArray[np.float64], classes: tuple[str, ...], levels: tuple[str, ...]
) -> NDArray[np.float64]:
    """The place of each row's class; NaN if there is none."""
    places = {name: float(place) for place, name in enumerate(classes)}
    distinct, own = np.unique(values, return_inverse=True)

    def name_of(value: float) -> str:
        if np.isnan(value):
            return ""
        return levels[int(value)] if levels else spelled(value)

    found = np.array([places.get(name_of(value), np.nan) for value in distinct.tolist()])
    return found[own]


def _dense_column(x: Matrix, names: list[str], name: str) -> NDArray[np.float64] | None:
    if not name:
        return None
    found: NDArray[np.float64] = x[:, names.index(name)].toarray().ravel().astype(np.float64)
    return found


def _codes(x: Matrix, names: list[str], name: str) -> NDArray[np.int64] | None:
    values = _dense_column(x, names, name)
    if values is None:
        return None
    return np.unique(values, return_inverse=True)[1].astype(np.int64)


def _kept(
    x: Matrix, names: list[str], apart: set[str], source: SparseSource, notes: list[str]
) -> list[int]:
    """Columns in which not all rows are the same."""
    counts = np.bincount(x.indices, minlength=x.shape[1])
    filled = np.bincount(x.indices, weights=x.data != 0, minlength=x.shape[1])
    is_same = filled == 0
    whole = np.flatnonzero(counts == x.shape[0])
    for start in range(0, len(whole), _TOGETHER):
        part = whole[start : start + _TOGETHER]
        values = x[:, part].toarray()
        is_same[part] = (values == values[0]).all(axis=0)
    others = [it for it in range(x.shape[1]) if names[it] not in apart]
    kept = [it for it in others if not is_same[it]]
    same = [it for it in others if is_same[it]]
    # Column 0 of a file that counts from 1 is no column at all.
    told = [names[it] for it in same if it or counts[0] or source.format != "libsvm"]
    if told:
        notes.append(f"left out: {listed(told)} (the same value in all rows)")
    return kept


def _without_others(x: Matrix, kept: list[int]) -> Matrix:
    """These columns only; nothing is copied if no value is lost."""
    from scipy import sparse

    places = np.full(x.shape[1], -1, x.indices.dtype)
    places[kept] = np.arange(len(kept), dtype=x.indices.dtype)
    indices = places[x.indices]
    if (indices < 0).any():
        return x[:, kept]
    return sparse.csr_matrix((x.data, indices, x.indptr), shape=(x.shape[0], len(kept)))


def _column(x: Matrix, place: int, name: str, source: SparseSource) -> SearchColumn:
    levels = source.levels.get(name, ())
    if levels:
        why = f"{len(levels)} levels, as the file says"
        return SearchColumn(name=name, kind="category", levels=levels, why=why)
    return SearchColumn(name=name, why="numbers, zero where nothing is written")


def _shaped(x: Matrix, columns: list[SearchColumn], notes: list[str]) -> Matrix:
    values = x.shape[0] * x.shape[1]
    share = x.nnz / max(1, values)
    if share > MOST_FILLED or values <= FEW_VALUES:
        return x.toarray()
    notes.append(f"{100 * (1 - share):.3g} % of the values are zero, and are not kept")
    return x


def sparse_rows(source: SparseSource, facts: TableFacts, *, with_target: bool) -> Rows:
    """Read more rows of a table that is known.

    Raises:
        UsageError: If a row has no target, or one that is not known.
    """
    from scipy import sparse

    parts, labels = [], []
    for chunk in source.chunks():
        parts.append(chunk.x)
        if chunk.label is not None:
            labels.append(np.asarray(chunk.label, np.float64))
    width = max((part.shape[1] for part in parts), default=0)
    if not parts:
        raise UsageError(f"{source.path} has no rows", remedy="give rows")
    x = _stacked(parts, width, sparse)
    names = {source.name_of(it): it for it in range(width)}
    lacking = [it.name for it in facts.columns if it.name not in names]
    if lacking and (source.names or not all(it[1:].isdigit() for it in lacking)):
        raise UsageError(
            f"{source.path} lacks {len(lacking)} of {len(facts.columns)} columns: "
            f"{listed(lacking)}",
            remedy=f"it has {listed(list(names), 20)}",
        )
    label = labels and np.concatenate(labels)
    y = None
    if with_target:
        y = _known_target(source, facts, x, names, label)
    x = _chosen(x, [names.get(column.name, -1) for column in facts.columns], sparse)
    x = _relevelled(x, source, facts)
    return Rows(x if facts.is_sparse else x.toarray(), y)


def _chosen(x: Matrix, places: list[int], sparse: Any) -> Matrix:
    """These columns; one that no row has is zero throughout."""
    if -1 in places:
        x = sparse.hstack([x, sparse.csr_matrix((x.shape[0], 1))], format="csr")
    found = x[:, [it if it >= 0 else x.shape[1] - 1 for it in places]]
    found.sort_indices()
    return found


def _relevelled(x: Matrix, source: SparseSource, facts: TableFacts) -> Matrix:
    """The same, the places of levels being those of the known table."""
    changed = [
        (place, column)
        for place, column in enumerate(facts.columns)
        if column.kind == "category"
        and source.levels.get(column.name, column.levels) != column.levels
    ]
    if not changed:
        return x
    dense = x.toarray()
    for place, column in changed:
        own = source.levels[column.name]
        places = [float(column.levels.index(it)) if it in column.levels else np.nan for it in own]
        values = dense[:, place]
        some = ~np.isnan(values)
        values[some] = np.array(places)[values[some].astype(int)]
    return type(x)(dense)


def _known_target(
    source: SparseSource, facts: TableFacts, x: Matrix, names: dict[str, int], label: Any
) -> NDArray[Any]:
    levels = source.levels.get(facts.target, ())
    if facts.target in names:
        values = x[:, names[facts.target]].toarray().ravel()
    elif len(label):
        values = label
    else:
        raise UsageError(
            f"{source.path} lacks the target '{facts.target}'",
            remedy=f"it has {listed(list(names), 20)}",
        )
    found = _placed(values, facts.classes, levels) if facts.is_classification else values
    bad = np.flatnonzero(np.isnan(found))
    if len(bad):
        raise unknown_target(source, facts, int(bad[0]), float(values[bad[0]]))
    return found.astype(np.int32 if facts.is_classification else np.float64)
