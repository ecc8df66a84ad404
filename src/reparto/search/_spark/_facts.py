"""Facts of a table on a cluster: what its columns are, its levels, classes and missing values.

raw frame ── one pass: kinds ──► columns ── one pass: levels ──► facts
          └──────────────────── typed ────────────────────────► frame of numbers

What is decided here is decided as `_tables` does for one machine, from fewer facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from reparto.errors import UsageError
from reparto.search._spark._look import Seen, is_plain, levels_of, look
from reparto.search._spark._read import Raw
from reparto.search._tables._columns import is_row_name
from reparto.search._tables._target import (
    MOST_CLASSES,
    MOST_NUMBER_CLASSES,
    ROWS_A_CLASS,
    column_named,
)
from reparto.spec import AskedDomain, Domain, SearchColumn, SearchRequest, TableFacts

#: With so many rows, a column of another whole number in each may number them.
_NUMBERED_ROWS = 20


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
    target, groups, time = _roles(request, raw)
    others = {target, groups, time}
    notes = list(raw.notes)
    kept = []
    for one in seen:
        if one.name in others:
            continue
        if why := _useless(one, num_rows):
            notes.append(f"{one.name} is left out: {why}")
        else:
            kept.append(one)
    if not kept:
        raise UsageError(
            f"{request.data} has no column to learn from",
            remedy="give columns of numbers or categories beside the target",
        )
    target = "" if request.domain == "clustering" else target
    about = by_name.get(target)
    wanted = [one for one in kept if one.kind == "category"]
    levels = levels_of(raw, [*wanted, *([about] if about and _may_be(about) else [])])
    columns = tuple(
        SearchColumn(
            name=one.name,
            kind=one.kind,
            levels=levels.get(one.name, ()),
            num_missing=num_rows - one.known,
            why=one.why,
        )
        for one in kept
    )
    facts = TableFacts(
        path=request.data, format=raw.format, num_rows=num_rows, num_rows_in_file=num_rows,
        columns=columns, target=target, groups=groups, time=time, digest=digest,
        domain="clustering" if not target else "regression", notes=tuple(notes),
    )  # fmt: skip
    kept += [by_name[name] for name in (groups, time) if name]
    if about is None:
        return facts, kept
    if missing := num_rows - about.known:
        facts = replace(
            facts,
            num_rows=about.known,
            notes=(*facts.notes, f"{missing} rows without {target} are left out"),
        )
    names = levels.get(target, ())
    domain = domain_of(about, request.domain, names)
    classes = names if domain in ("binary", "multiclass") else ()
    return replace(facts, domain=domain, classes=classes), [*kept, about]


def _may_be(target: Seen) -> bool:
    """Whether a target has few enough values that its classes can be looked at."""
    return target.distinct <= 2 * MOST_CLASSES


def domain_of(target: Seen, asked: AskedDomain | None, names: Sequence[str]) -> Domain:
    """What kind of question a target is; `names` are its different values if they are few.

    Raises:
        UsageError: If it is not what was asked for, or there is nothing to tell apart.
    """
    if not target.known:
        raise UsageError(f"{target.name} has no values", remedy="name another target")
    count = len(names) or target.distinct
    if asked == "regression":
        if target.kind in ("category", "text"):
            raise UsageError(
                f"{target.name} is no number, so it cannot be a regression",
                remedy="leave --domain regression out, or name another column with --target",
            )
        return "regression"
    if asked is None and target.kind in ("number", "date"):
        is_whole = target.kind == "number" and target.whole == target.numbers
        pair = count == 2 and (is_whole or target.known >= 2 * ROWS_A_CLASS)
        few = count <= MOST_NUMBER_CLASSES and target.known >= ROWS_A_CLASS * count
        if not (pair or (is_whole and few)):
            return "regression"
    if count < 2:
        raise UsageError(
            f"{target.name} is the same in all rows: there is nothing to learn",
            remedy="name another target",
        )
    if count > MOST_CLASSES or 2 * count > max(target.known, 10):
        raise UsageError(
            f"{target.name} has about {count} different values, too many to be classes",
            remedy="--domain regression if it is a number, or another target",
        )
    if asked == "binary" and count != 2:
        raise UsageError(
            f"{target.name} has {count} classes, not two", remedy="--domain multiclass"
        )
    return asked if asked in ("binary", "multiclass") else "binary" if count == 2 else "multiclass"


def _roles(request: SearchRequest, raw: Raw) -> tuple[str, str, str]:
    """The columns that are foretold, by which rows belong together, and when they were."""
    path = Path(request.data)
    target, groups, time = (
        column_named(wanted, raw.names, path, f"--{option}") if wanted else ""
        for option, wanted in (
            ("target", request.target), ("groups", request.groups), ("time", request.time)
        )
    )  # fmt: skip
    if not target and request.domain != "clustering":
        target = [name for name in raw.names if name not in (groups, time)][-1]
    return target, groups, time


def _useless(one: Seen, num_rows: int) -> str:
    if not is_plain(one.type):
        return f"its type {one.type} is none that techniques take"
    if not one.known:
        return "no row has a value"
    if one.kind == "text":
        return f"it is text with about {one.distinct} different values"
    is_same = one.low == one.high if one.kind == "number" else one.distinct <= 1
    if is_same and one.known == num_rows:
        return "it has the same value in all rows"
    if (
        is_row_name(one.name)
        and num_rows >= _NUMBERED_ROWS
        and one.whole == num_rows
        and one.distinct > 0.9 * num_rows
    ):
        return "it numbers the rows"
    return ""
