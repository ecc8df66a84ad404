"""Target: which column is to be foretold, and what kind of question that makes."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reparto.errors import UsageError
from reparto.search._tables._columns import date_as_text, level_order, number_as_text
from reparto.search._tables._forms import number_reader, spelled
from reparto.search._tables._source import listed, shortened
from reparto.search._tables._survey import ColumnSurvey
from reparto.spec import AskedDomain, Domain, SearchColumn

#: Whole numbers of so many different values at most are classes, if each occurs so often.
MOST_NUMBER_CLASSES, ROWS_A_CLASS = 20, 3
#: There is nothing to learn from so many classes.
MOST_CLASSES = 2000
_CLASSES = ("classification", "binary", "multiclass")
_REMEDY = "name a column with --target, or search for clusters: --domain clustering"


@dataclass(frozen=True)
class Target:
    """What is to be foretold.

    Attributes:
        column: How its values are read; of a classification, its levels are the classes.
        domain: What kind of question that is.
        why: For people.
    """

    column: SearchColumn
    domain: Domain
    why: str

    @property
    def classes(self) -> tuple[str, ...]:
        """Of a classification, in the order of their numbers."""
        return self.column.levels


def column_named(
    wanted: str, names: Sequence[str], path: Path, option: str, *, are_own: bool = True
) -> str:
    """The column that the user means.

    Args:
        wanted: Its name, or its place: ``3``, or ``-1`` for the last one.
        names: Of all columns.
        path: Of the file.
        option: By which it was named, for people.
        are_own: Whether the file has names.

    Raises:
        UsageError: If there is none.
    """
    if wanted in names:
        return wanted
    loosely = [name for name in names if name.strip().lower() == wanted.strip().lower()]
    if len(loosely) == 1:
        return loosely[0]
    if wanted.lstrip("-").isdigit() and -len(names) <= int(wanted) < len(names):
        return names[int(wanted)]
    close = difflib.get_close_matches(wanted, names, 3, cutoff=0.5)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    its = "it has" if are_own else f"it has no names, so say 0 to {len(names) - 1}, or"
    raise UsageError(
        f"{path}: there is no column '{wanted}' ({option})",
        remedy=f"{hint}{its} {listed(list(names), 30)}",
    )


def decide_target(
    survey: ColumnSurvey, asked: AskedDomain | None, path: Path, *, levels: tuple[str, ...] = ()
) -> Target:
    """Decide what kind of question a column asks.

    Args:
        survey: Of the column.
        asked: What the user says that it is; None to find out.
        path: Of the file.
        levels: If the file says what values there can be.

    Raises:
        UsageError: If nothing can be learned of it, or not what the user says.
    """
    name = survey.name
    if survey.kind in ("nothing", "other") or not (survey.counts or survey.kind == "date"):
        what = "holds neither numbers nor texts" if survey.kind == "other" else "has no values"
        raise UsageError(f"{path}: the target '{name}' {what}", remedy=_REMEDY)
    numbers, form = _as_numbers(survey, levels)
    if survey.kind == "date":
        numbers = None
    elif numbers is None and not levels:
        dates = date_as_text(survey)
        if dates is not None and asked not in _CLASSES:
            form = dates.form
    distinct = len(numbers if numbers is not None else survey.counts)
    if asked == "regression":
        return _regression(survey, numbers, form, path, "as was asked")
    if asked in _CLASSES:
        return _classes(survey, numbers, levels, form, asked, path, "as was asked")
    if survey.kind == "date" or (numbers is None and form):
        return _regression(survey, numbers, form, path, "it holds dates")
    if numbers is None:
        return _classes(survey, None, levels, form, None, path, "it holds names")
    total = sum(numbers.values())
    is_whole = not survey.is_uncounted and all(it == int(it) for it in numbers)
    pair = distinct == 2 and (is_whole or total >= 2 * ROWS_A_CLASS)
    if pair or (is_whole and distinct <= MOST_NUMBER_CLASSES and total >= ROWS_A_CLASS * distinct):
        if distinct == 1:
            raise _one_value(survey, path)
        why = f"it has {distinct} different {'whole ' if is_whole else ''}values"
        return _classes(survey, numbers, levels, form, None, path, why)
    count = f"more than {distinct - 1}" if survey.is_uncounted else str(distinct)
    return _regression(survey, numbers, form, path, f"it has {count} different values")


def _as_numbers(
    survey: ColumnSurvey, levels: tuple[str, ...]
) -> tuple[Counter[float] | None, str]:
    """How often each number occurs, if these are numbers; and how they are written."""
    if survey.kind == "number":
        return survey.counts, ""
    if levels or survey.kind != "text":
        return None, ""
    column = number_as_text(survey, comma_separates=True)
    if column is None:
        return None, ""
    read, numbers = number_reader(column.form), Counter[float]()
    for text, count in survey.counts.items():
        number = read(text)
        if number is not None:
            numbers[number] += count
    return numbers, column.form


def _regression(
    survey: ColumnSurvey, numbers: Counter[float] | None, form: str, path: Path, why: str
) -> Target:
    kind: str = "number"
    if survey.kind == "date" or (numbers is None and form):
        kind = "date"
    elif numbers is None:
        some = [it for it in survey.counts if number_reader("")(it) is None]
        raise UsageError(
            f"{path}: the target '{survey.name}' holds {listed(some, 3)}, which are no numbers",
            remedy="leave --domain regression out, or name another column with --target",
        )
    constant = (
        survey.low == survey.high and survey.kind == "date"
        if kind == "date"
        else numbers is not None and len(numbers) == 1
    )
    if constant:
        raise _one_value(survey, path)
    told = f"regression of '{survey.name}': {why} (--domain classification for classes)"
    if why == "as was asked":
        told = f"regression of '{survey.name}', {why}"
    if kind == "date":
        return Target(SearchColumn(name=survey.name, kind="date", form=form), "regression", told)
    return Target(SearchColumn(name=survey.name, form=form), "regression", told)


def _classes(
    survey: ColumnSurvey,
    numbers: Counter[float] | None,
    levels: tuple[str, ...],
    form: str,
    asked: AskedDomain | None,
    path: Path,
    why: str,
) -> Target:
    name = survey.name
    if survey.kind == "date":
        raise UsageError(
            f"{path}: the target '{name}' holds dates, which are no classes",
            remedy="name another column with --target, or --domain regression",
        )
    counts = Counter(survey.counts) if numbers is None else numbers
    total = sum(counts.values())
    if survey.is_uncounted or len(counts) > MOST_CLASSES or 2 * len(counts) > max(total, 10):
        known = f"more than {len(counts) - 1}" if survey.is_uncounted else str(len(counts))
        remedy = "--domain regression" if numbers is not None else "name another with --target"
        raise UsageError(
            f"{path}: the target '{name}' has {known} different values in {total} rows, too many "
            "to be classes",
            remedy=remedy,
        )
    if len(counts) == 1:
        raise _one_value(survey, path)
    if numbers is not None:
        classes = tuple(spelled(it) for it in sorted(numbers))
    elif levels:
        extra = sorted(set(survey.counts) - set(levels))
        classes = (*(it for it in levels if survey.counts[it]), *extra)
    else:
        classes = tuple(sorted(survey.counts, key=level_order))
    if asked == "binary" and len(classes) != 2:
        raise UsageError(
            f"{path}: the target '{name}' has {len(classes)} classes: {listed(list(classes))}",
            remedy="--domain multiclass",
        )
    domain: Domain = "binary" if len(classes) == 2 else "multiclass"
    if asked == "multiclass":
        domain = asked
    kind = "two classes" if len(classes) == 2 else f"{len(classes)} classes"
    told = f"classification of '{name}' into {kind} ({_few(classes)}): {why}"
    if asked is None and numbers is not None:
        told += " (--domain regression to foretell numbers)"
    return Target(
        SearchColumn(name=name, kind="category", levels=classes, form=form), domain, told
    )


def _few(classes: Sequence[str], most: int = 6) -> str:
    told = ", ".join(shortened(it, 20) for it in classes[:most])
    return told if len(classes) <= most else f"{told}, …"


def _one_value(survey: ColumnSurvey, path: Path) -> UsageError:
    values = [spelled(it) if isinstance(it, float) else it for it in survey.counts]
    value = f" ('{shortened(values[0])}')" if values else ""
    return UsageError(
        f"{path}: the target '{survey.name}' has the same value{value} in all rows: there is "
        "nothing to learn",
        remedy=_REMEDY,
    )
