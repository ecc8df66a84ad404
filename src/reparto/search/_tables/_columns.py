"""Columns: what kind each one is, and which are left out, decided from a survey."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

from reparto.search._tables._forms import (
    MISSING_NUMBER,
    date_form,
    date_reader,
    number_form,
    number_reader,
    spelled,
)
from reparto.search._tables._source import listed, shortened
from reparto.search._tables._survey import ColumnSurvey
from reparto.spec import SearchColumn

#: A category has so many levels at most: the most frequent ones.
MOST_LEVELS = 1000
#: So many different values are looked at to find out how they are written.
_EXAMPLES = 2000
#: Texts of which so many are different say which row it is, and nothing of others.
_UNIQUE_SHARE, _UNIQUE_ROWS = 0.9, 20
#: Of numbers in a column with other things: this share at least, and so many different ones.
_NUMBER_SHARE, _NUMBER_VALUES = 0.97, 10
#: Names of columns that number the rows.
_ROW_NAMES = re.compile(
    r"(unnamed(: ?|_)\d+|__index_level_\d+__|row|rows|nr|no|num|key|index|idx|level_0|rownames|"
    r"(.*[_\- .])?(id|uid|uuid|guid|idx|index)|row[_ ]?(id|num|number|name|names|no|nr|index)|"
    r".*Id|.*ID)"
)


@dataclass
class Decided:
    """What was decided of the columns.

    Attributes:
        columns: Those that techniques see.
        left_out: By reason, the names of those that they do not.
        notes: For people.
    """

    columns: list[SearchColumn] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def leave_out(self, name: str, why: str) -> None:
        """Leave a column out, and remember why."""
        self.left_out.setdefault(why, []).append(name)

    @property
    def told(self) -> list[str]:
        """For people, what was left out too."""
        notes = list(self.notes)
        for why, names in self.left_out.items():
            notes.append(f"left out: {listed(names)} ({why})")
        return notes


def is_row_name(name: str) -> bool:
    """Whether a column of that name could number the rows."""
    return _ROW_NAMES.fullmatch(name) is not None or _ROW_NAMES.fullmatch(name.lower()) is not None


def decide(
    survey: ColumnSurvey,
    num_rows: int,
    decided: Decided,
    *,
    levels: tuple[str, ...] = (),
    numbers_rows: bool = False,
    comma_separates: bool = True,
) -> None:
    """Decide what a column is.

    Args:
        survey: What is known of it.
        num_rows: Of the table.
        decided: Is added to.
        levels: If the file says what values there can be.
        numbers_rows: Whether its name says that it numbers the rows.
        comma_separates: Whether a comma parts the columns of the file.
    """
    name = survey.name
    if survey.kind == "other":
        decided.leave_out(name, "it holds lists or other things that are neither number nor text")
    elif survey.num_missing == num_rows:
        decided.leave_out(name, "no row has a value")
    elif survey.kind == "text":
        column = _text(survey, num_rows, decided, levels, numbers_rows, comma_separates)
        if column is not None:
            decided.columns.append(column)
    elif survey.low == survey.high and not survey.num_missing:
        decided.leave_out(name, "it has the same value in all rows")
    elif numbers_rows and _numbers_rows(survey, num_rows):
        decided.leave_out(name, "it numbers the rows")
    else:
        decided.columns.append(_number(survey))
        if survey.num_infinite:
            decided.notes.append(
                f"{survey.num_infinite} infinite values of '{name}' are taken as missing"
            )


def _numbers_rows(survey: ColumnSurvey, num_rows: int) -> bool:
    """Whether it has another whole number in each row."""
    is_unique = survey.is_unique if survey.is_uncounted else len(survey.counts) == num_rows
    return (
        survey.kind == "number"
        and survey.is_counted
        and is_unique
        and survey.is_whole
        and not survey.num_missing
        and num_rows >= _UNIQUE_ROWS
    )


def _number(survey: ColumnSurvey) -> SearchColumn:
    low, high = spelled(float(survey.low)), spelled(float(survey.high))
    if survey.kind == "date":
        why = f"dates, {_day(survey.low)} to {_day(survey.high)}"
        return SearchColumn(name=survey.name, kind="date", why=why)
    what = "whole numbers" if survey.is_whole else "numbers"
    return SearchColumn(name=survey.name, why=f"{what}, {low} to {high}")


def _day(seconds: float) -> str:
    import datetime

    try:
        return datetime.datetime.fromtimestamp(seconds, datetime.UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):  # beyond the year 9999
        return spelled(seconds)


def _text(
    survey: ColumnSurvey,
    num_rows: int,
    decided: Decided,
    levels: tuple[str, ...],
    numbers_rows: bool,
    comma_separates: bool,
) -> SearchColumn | None:
    name, counts = survey.name, survey.counts
    if levels:
        if len(counts) == 1 and not survey.num_missing:
            decided.leave_out(name, "it has the same value in all rows")
            return None
        extra = sorted(set(counts) - set(levels))
        why = f"{len(levels)} levels, as the file says: {_few(levels)}"
        return SearchColumn(name=name, kind="category", levels=(*levels, *extra), why=why)
    written = number_as_text(survey, comma_separates)
    if written is not None:
        if written.why.startswith("the same"):
            decided.leave_out(name, "it has the same value in all rows")
            return None
        return written
    dates = date_as_text(survey)
    if dates is not None:
        return dates
    if len(counts) == 1 and not survey.num_missing:
        decided.leave_out(name, "it has the same value in all rows")
        return None
    present = num_rows - survey.num_missing
    many = survey.is_uncounted or len(counts) > _UNIQUE_SHARE * present
    if (many and present >= _UNIQUE_ROWS) or (
        numbers_rows and len(counts) == present and present >= 3
    ):
        is_text = _is_free_text(survey)
        why = "free text" if is_text else "it has another value in nearly every row"
        decided.leave_out(name, why)
        return None
    if _is_free_text(survey) and len(counts) > 0.5 * present and present >= _UNIQUE_ROWS:
        decided.leave_out(name, "free text")
        return None
    return _category(survey, decided)


def _category(survey: ColumnSurvey, decided: Decided) -> SearchColumn:
    kept = list(survey.counts)
    if len(kept) > MOST_LEVELS:
        kept = [value for value, _ in survey.counts.most_common(MOST_LEVELS)]
        decided.notes.append(
            f"'{survey.name}' has {len(survey.counts)} levels: the {MOST_LEVELS} most frequent "
            "ones are kept, others count as missing"
        )
    levels = tuple(sorted(kept, key=level_order))
    why = f"{len(levels)} level{'s' * (len(levels) != 1)}: {_few(levels)}"
    mixed = [value for value in levels if number_reader("")(value) is not None]
    if mixed and len(mixed) < len(levels):
        why += f"; numbers and others are mixed, such as {_few((mixed[0],))} among them"
    return SearchColumn(name=survey.name, kind="category", levels=levels, why=why)


def level_order(value: str) -> tuple[int, float, str]:
    """Numbers first, by their value; then texts."""
    number = number_reader("")(value)
    return (0, number, value) if number is not None else (1, 0.0, value)


def number_as_text(survey: ColumnSurvey, comma_separates: bool) -> SearchColumn | None:
    """The column, if its texts are numbers with a few other things among them; else None."""
    some = dict(survey.counts.most_common(_EXAMPLES))
    bare = {it: count for it, count in some.items() if it.lower() not in MISSING_NUMBER}
    if not bare:
        return None
    form = number_form(bare, comma_separates=comma_separates)
    read = number_reader(form)
    numbers = {it: number for it in bare if (number := read(it)) is not None}
    others = Counter({it: count for it, count in bare.items() if it not in numbers})
    share = sum(bare[it] for it in numbers) / sum(bare.values())
    if others and (share < _NUMBER_SHARE or len(numbers) < _NUMBER_VALUES):
        return None
    if not numbers or 2 * sum(bare[it] for it in numbers) < sum(some.values()):
        return None
    low, high = min(numbers.values()), max(numbers.values())
    if low == high and len(some) == len(numbers) and not survey.num_missing:
        return SearchColumn(name=survey.name, why="the same in all rows", form=form)
    why = f"numbers, {spelled(low)} to {spelled(high)}"
    if form:
        why += f", written as {form}"
    lost = Counter({it: count for it, count in some.items() if it not in numbers})
    if lost:
        told = ", ".join(f"'{shortened(it, 20)}'" for it, _ in lost.most_common(3))
        why += f"; {sum(lost.values())} that are none count as missing ({told})"
    return SearchColumn(name=survey.name, why=why, form=form)


def date_as_text(survey: ColumnSurvey) -> SearchColumn | None:
    """The column, if its texts are dates; else None."""
    some = [
        it for it, _ in survey.counts.most_common(_EXAMPLES) if it.lower() not in MISSING_NUMBER
    ]
    form, is_guess = date_form(some)
    if not form:
        return None
    read = date_reader(form)
    seconds = [when for it in some if (when := read(it)) is not None]
    why = f"dates written as {form}, {_day(min(seconds))} to {_day(max(seconds))}"
    if is_guess:
        why += "; whether the day or the month comes first cannot be told: the month is taken"
    return SearchColumn(name=survey.name, kind="date", form=form, why=why)


def _is_free_text(survey: ColumnSurvey) -> bool:
    some = list(survey.counts)[:1000]
    words = sum(len(it.split()) for it in some) / len(some)
    length = sum(map(len, some)) / len(some)
    return words >= 3.5 or length > 60


def _few(values: tuple[str, ...], most: int = 5) -> str:
    told = ", ".join(shortened(it, 20) for it in values[:most])
    return told if len(values) <= most else f"{told}, …"
