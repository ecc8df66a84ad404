"""Forms: how numbers and dates are written, found out from examples, and read by."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

#: What stands for no value in a column of any kind.
MISSING = frozenset(
    [
        "",
        "NA",
        "N/A",
        "n/a",
        "#N/A",
        "#NA",
        "<NA>",
        "NaN",
        "nan",
        "NAN",
        "-nan",
        "null",
        "NULL",
        "\\N",
        "?",
        "#DIV/0!",
        "#VALUE!",
        "#REF!",
        "#NULL!",
    ]
)
#: And beside numbers and dates also:
MISSING_NUMBER = frozenset(
    [
        *"- -- . .. ... none na n.a. n.a missing unknown undefined nil void * nd n.d. #".split(),
        "not available",
        "not applicable",
        "no data",
    ]
)

#: A number that needs no more to be known.
PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE)
_MARKS = re.compile(r"^([+-]?)\s*[$€£¥]?\s*([+-]?)|\s*(%|[$€£¥])$")
#: 1,234.5 and 1 234.5 and 1'234.5; and with a comma 1.234,5
_POINT = re.compile(
    r"[+-]?\d{1,3}([, '’\u00a0\u202f]\d{3})*(\.\d+)?|[+-]?\d*\.?\d+([eE][+-]?\d+)?"
)
_COMMA = re.compile(r"[+-]?\d{1,3}([. '’\u00a0\u202f]\d{3})*(,\d+)?|[+-]?\d*,?\d+([eE][+-]?\d+)?")
POINT_FORM, COMMA_FORM, CLOCK_FORM = "1,234.5", "1.234,5", "12:34:56"
_CLOCK = re.compile(r"(\d{1,3}):([0-5]\d)(:([0-5]\d(\.\d+)?))?")
_UNIT = re.compile(r"[+-]?[\d.,' ]*\d\s*([A-Za-zµ°/²³]{1,10})")
#: Behind a number these multiply it, so one without them is of another size.
_MULTIPLES = frozenset("k K m M b B t T G mn Mn mio Mio bn Bn tn".split())

Reader = Callable[[str], float | None]


def number_reader(form: str) -> Reader:
    """What makes a number of a text written so; None where it is no number.

    Args:
        form: Empty for plain numbers, else `POINT_FORM`, `COMMA_FORM`, either of them with a unit
            behind it (``1,234.5 kg``), or `CLOCK_FORM`, of which seconds are made.
    """
    if not form:
        return _plain
    if form == CLOCK_FORM:
        return _clock
    form, _, unit = form.partition(" ")
    pattern, kept = (_POINT, ".") if form == POINT_FORM else (_COMMA, ",")

    def read(text: str) -> float | None:
        if unit in _MULTIPLES and not text.rstrip().endswith(unit):
            return None
        bare = _MARKS.sub(r"\1\2", text.strip().removesuffix(unit).rstrip())
        if not pattern.fullmatch(bare):
            return _plain(text)
        digits = "".join("." if it == kept else it for it in bare if it in f"+-0123456789eE{kept}")
        return float(digits)

    return read


def _plain(text: str) -> float | None:
    bare = text.strip()
    return float(bare) if PLAIN.fullmatch(bare) else None


def _clock(text: str) -> float | None:
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        return None
    hours, minutes, _, seconds, _ = found.groups()
    return 3600.0 * int(hours) + 60.0 * int(minutes) + float(seconds or 0)


def number_form(texts: Iterable[str], *, comma_separates: bool) -> str:
    """The form in which most of these can be read: empty for plain numbers.

    Args:
        texts: Examples.
        comma_separates: Whether a comma parts the columns of the file; then ``1,234`` in quotes is
            rather a thousand than a bit more than one.
    """
    some = [text.strip() for text in texts]
    units = Counter(found.group(1) for text in some if (found := _UNIT.fullmatch(text)))
    unit, count = max(units.items(), key=lambda item: item[1], default=("", 0))
    unit = f" {unit}" if 2 * count > len(some) else ""
    forms = ("", POINT_FORM + unit, COMMA_FORM + unit, CLOCK_FORM)
    counts = {form: sum(number_reader(form)(text) is not None for text in some) for form in forms}
    most = max(counts.values())
    if counts[""] == most:
        return ""
    if counts[CLOCK_FORM] == most:
        return CLOCK_FORM
    if counts[forms[1]] != counts[forms[2]]:
        return forms[1] if counts[forms[1]] == most else forms[2]
    bare = [_MARKS.sub(r"\1\2", text) for text in some]
    if not any("," in text for text in bare):  # only thousands apart, 1.234.567 or 1 234
        return forms[2] if any(text.count(".") > 1 for text in bare) else forms[1]
    if any(text.count(",") > 1 for text in bare):
        return forms[1]
    if any(re.match(r"[+-]?0,", text) for text in bare):
        return forms[2]
    # Always three digits behind the comma; but for numbers below 1000, which have none.
    small = [text for text in bare if "," not in text]
    if small and all(re.fullmatch(r"[+-]?\d{1,3}", text) for text in small):
        return forms[1]
    return forms[1] if comma_separates else forms[2]


#: Patterns that a date has, and how it may then be written; those with the day first come second.
_DAY, _TIME = r"\d{1,2}", r"( \d{1,2}:\d{2}(:\d{2})?( ?[AaPp][Mm])?)?"
_DATES = (
    (rf"\d{{4}}/{_DAY}/{_DAY}{_TIME}", ("%Y/%m/%d",)),
    (rf"{_DAY}/{_DAY}/\d{{4}}{_TIME}", ("%m/%d/%Y", "%d/%m/%Y")),
    (rf"{_DAY}/{_DAY}/\d{{2}}{_TIME}", ("%m/%d/%y", "%d/%m/%y")),
    (rf"{_DAY}-{_DAY}-\d{{4}}{_TIME}", ("%m-%d-%Y", "%d-%m-%Y")),
    (rf"{_DAY}\.{_DAY}\.\d{{4}}{_TIME}", ("%d.%m.%Y",)),
    (rf"{_DAY}\.{_DAY}\.\d{{2}}{_TIME}", ("%d.%m.%y",)),
    (rf"{_DAY}[- ][A-Za-z]{{3}}[- ]\d{{4}}{_TIME}", ("%d-%b-%Y", "%d %b %Y")),
    (rf"{_DAY}-[A-Za-z]{{3}}-\d{{2}}{_TIME}", ("%d-%b-%y",)),
    (rf"[A-Za-z]{{3}} {_DAY}, \d{{4}}{_TIME}", ("%b %d, %Y",)),
    (rf"[A-Za-z]{{4,9}} {_DAY}, \d{{4}}{_TIME}", ("%B %d, %Y",)),
)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p", " %I:%M%p", " %I:%M:%S%p")
_ISO = re.compile(
    r"\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?)?)?(Z| ?[+-]\d\d:?\d\d| UTC| GMT)?"
)
ISO_FORM = "ISO 8601"


def date_reader(form: str) -> Reader:
    """What makes seconds since 1970 of a text written so; None where it is no date."""
    if form == ISO_FORM:
        return _iso

    def read(text: str) -> float | None:
        try:
            when = datetime.strptime(text.strip(), form)
        except ValueError:
            return None
        return when.replace(tzinfo=UTC).timestamp()

    return read


def _iso(text: str) -> float | None:
    bare = text.strip()
    if not _ISO.fullmatch(bare):
        return None
    bare = re.sub(r"(\.\d{6})\d+", r"\1", bare).replace(" +", "+")
    bare = re.sub(" (UTC|GMT)$", "Z", bare)
    try:
        when = datetime.fromisoformat(f"{bare}-01" if len(bare) == 7 else bare)
    except ValueError:
        return None
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()


def date_form(texts: Iterable[str]) -> tuple[str, bool]:
    """The form in which all of these are dates, empty if there is none; and if it is a guess."""
    some = [text.strip() for text in texts]
    if not some:
        return "", False
    if _ISO.fullmatch(some[0]):
        return (ISO_FORM if all(_iso(text) is not None for text in some) else ""), False
    for pattern, dates in _DATES:
        if not re.fullmatch(pattern, some[0]):
            continue
        fit = [
            form
            for form in (date + time for date in dates for time in _TIMES)
            if all(date_reader(form)(text) is not None for text in some)
        ]
        if fit:
            days_first = [form for form in fit if form.startswith("%d")]
            months_first = [form for form in fit if form.startswith("%m")]
            return fit[0], bool(days_first and months_first)
    return "", False


def spelled(value: float) -> str:
    """A number as a person writes it: 3, not 3.0."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.6g}" if float(f"{value:.6g}") == value else repr(float(value))
