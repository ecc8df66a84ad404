"""Roles: which column is the target, which one groups rows, and which one tells the time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search._tables._columns import date_as_text, number_as_text
from reparto.search._tables._source import Source
from reparto.search._tables._survey import ColumnSurvey
from reparto.search._tables._target import column_named
from reparto.search._tables._text import imported
from reparto.spec import SearchColumn, SearchRequest


@dataclass(frozen=True)
class Roles:
    """Columns that techniques do not see.

    Attributes:
        target: That is foretold, or of a clustering left out; empty for none.
        groups: By which rows belong together; empty for none.
        time: By which rows follow each other; empty for none.
        notes: For people.
    """

    target: str
    groups: str
    time: str
    notes: tuple[str, ...]

    @property
    def others(self) -> frozenset[str]:
        """All of them."""
        return frozenset((self.target, self.groups, self.time)) - {""}


def roles_of(source: Source, request: SearchRequest) -> Roles:
    """Find the columns that the request names.

    Raises:
        UsageError: If there is no such column, or one has two roles.
    """

    def named(wanted: str, option: str) -> str:
        if not wanted:
            return ""
        return column_named(wanted, source.names, source.path, option, are_own=source.has_names)

    notes: list[str] = []
    groups, time = named(request.groups, "--groups"), named(request.time, "--time-column")
    target = named(request.target, "--target")
    if request.domain == "clustering":
        if target:
            notes.append(f"left out: '{target}', which was named as the target")
    elif not target:
        free = [it for it in source.names if it not in (groups, time)]
        free = [it for it in free if it not in source.blank] or free
        if not free:
            raise UsageError(
                f"{source.path}: no column is left to foretell", remedy="give more columns"
            )
        target = source.target if source.target in free else free[-1]
        if target != source.target or source.format != "numpy":
            notes.append(
                f"no target was named, so '{target}' is foretold, "
                f"{'the class' if target == source.target else 'the last column'} "
                "(--target NAME for another)"
            )
    for one, other, what in (
        (target, groups, "target and groups"),
        (target, time, "target and time"),
    ):
        if one and one == other:
            raise UsageError(
                f"{source.path}: '{one}' is named as {what}", remedy="name another column"
            )
    return Roles(target, groups, time, tuple(notes))


def time_column(survey: ColumnSurvey) -> SearchColumn:
    """How moments are read.

    Raises:
        UsageError: If they are none.
    """
    if survey.kind in ("number", "date"):
        return SearchColumn(name=survey.name)
    if survey.kind == "text":
        found = date_as_text(survey) or number_as_text(survey, comma_separates=True)
        if found is not None:
            return found
    some = ", ".join(repr(it) for it in list(survey.counts)[:3])
    raise UsageError(
        f"the column '{survey.name}' tells no time: {some or 'it has no values'}",
        remedy="name a column of dates or numbers",
    )


def groups_of(chunks: list[Any], notes: list[str], name: str) -> NDArray[np.int64]:
    """The number of each row's group; rows without one are a group of their own."""
    pyarrow = imported()
    whole = pyarrow.chunked_array(
        [it.dictionary_decode() if pyarrow.types.is_dictionary(it.type) else it for it in chunks]
    ).combine_chunks()
    if isinstance(whole, pyarrow.ChunkedArray):  # of no chunks
        whole = pyarrow.concat_arrays(whole.chunks)
    codes = whole.dictionary_encode().indices
    lacking = codes.null_count
    if lacking:
        notes.append(f"rows without a value of '{name}' are taken as one group: {lacking}")
    found: NDArray[np.int64] = codes.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found + 1 if lacking else found
