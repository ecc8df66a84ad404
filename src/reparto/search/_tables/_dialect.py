"""Dialect: how a file of values is written, inferred from its first lines."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reparto.search._tables._forms import COMMA_FORM, MISSING, PLAIN, number_form, number_reader

#: In the order in which they are preferred, where several would do.
DELIMITERS = ("\t", ";", "|", ",", " ")
#: Any number of spaces and tabs part columns.
BLANKS = "blanks"
_NAMES = {"\t": "tabs", ";": "';'", "|": "'|'", ",": "','", " ": "spaces", BLANKS: "blanks"}
#: So many rows are looked at.
_MOST_ROWS = 2000


@dataclass(frozen=True)
class Dialect:
    """How a file is written.

    Attributes:
        delimiter: What parts columns: a letter, or `BLANKS`.
        names: Of the columns, as they stand there; empty if there are none.
        width: How many columns there are.
        decimal: What parts the digits of a fraction.
        are_text: For each column, whether there is more than plain numbers in it.
        num_blank: Empty lines before the first one that is not.
        has_quotes: Whether a value in quotes was seen.
        row_bytes: About so many a row.
        only_header: Whether there is but a single line.
    """

    delimiter: str
    names: tuple[str, ...]
    width: int
    decimal: str
    are_text: tuple[bool, ...]
    num_blank: int
    has_quotes: bool
    row_bytes: float

    @property
    def told(self) -> str:
        """For people."""
        parts = "one column" if self.width == 1 else f"columns parted by {_NAMES[self.delimiter]}"
        header = "names in the first line" if self.names else "no line of names"
        comma = ", fractions with a comma" if self.decimal == "," else ""
        return f"{parts}, {header}{comma}"


def sniff(sample: str, known: Sequence[str] = ()) -> Dialect:
    """Infer how a file is written.

    Args:
        sample: Its first lines.
        known: Names of columns that are looked for; if they stand in the first line, that is a
            line of names, whatever it looks like.
    """
    delimiter = _delimiter(sample)
    rows = rows_of(sample, delimiter)
    widths = Counter(len(row) for row in rows[1:] or rows)
    width = max(widths, key=lambda count: (widths[count], count))
    body, first = rows[1:], rows[0]
    names: tuple[str, ...] = ()
    if len(first) == width - 1 and len(body) > 1 and not _numbers(first):
        names = ("", *first)  # as R writes them: none above the names of the rows
    elif _is_header(first, body, known):
        names = tuple(first)
        width = len(first) if not body else width
    values = body if names else rows
    columns = [[row[it].strip() for row in values if it < len(row)] for it in range(width)]
    shown = [[text for text in column if text not in MISSING] for column in columns]
    decimal = "," if delimiter != "," and _has_decimal_comma(shown) else "."
    blank = re.match(r"([ \t]*(\r\n|\n|\r))*", sample)
    return Dialect(
        delimiter,
        tuple(name.strip().strip("\ufeff").strip() for name in names),
        width,
        decimal,
        tuple(not all(_is_number(text, decimal) for text in column) for column in shown),
        len(re.findall(r"\r\n|\n|\r", blank.group())) if blank else 0,
        '"' in sample,
        len(sample) / max(1, sample.count("\n")),
    )


def rows_of(text: str, delimiter: str, most: int = _MOST_ROWS) -> list[list[str]]:
    """The values of the first rows; a row that cannot be understood ends them."""
    if delimiter == BLANKS:
        text = re.sub(r"(?m)^ | $", "", re.sub(r"[ \t\r]+", " ", text))
        delimiter = " "
    found: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter):
            if row and (len(row) > 1 or row[0].strip()):
                found.append(row)
            if len(found) >= most:
                break
    except csv.Error:  # a value longer than the reader takes
        found = found or [[text[:100]]]
    return found


def _delimiter(sample: str) -> str:
    best, best_score, best_width = ",", (0.0, 0), 0
    candidates = list(DELIMITERS)
    if re.search(r"[^\s][ \t]{2,}[^\s]", sample) or re.search(r"(?m)^ +[^\s]", sample):
        candidates[-1] = BLANKS
    for place, delimiter in enumerate(candidates):
        rows = rows_of(sample, delimiter, 300)
        widths = Counter(map(len, rows))
        if not widths:
            continue
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]))
        if width < 2:
            continue
        score = (round(count / len(rows), 2), -place)
        if delimiter in (" ", BLANKS) and score[0] < 0.98:
            continue  # words of a sentence
        # A single tab among many blanks parts no more than they do.
        is_finer = delimiter == BLANKS and best == "\t" and width > best_width
        if score > best_score or is_finer:
            best, best_score, best_width = delimiter, score, width
    return best


def _is_header(first: Sequence[str], body: Sequence[Sequence[str]], known: Sequence[str]) -> bool:
    cells = [text.strip() for text in first]
    if known:
        return bool(set(known) & set(cells)) and not _numbers(cells)
    if not body:
        return not any(_is_number(text, ".") for text in cells)
    says, against = 0, 0
    for index, name in enumerate(cells):
        below = [row[index].strip() for row in body if index < len(row)]
        below = [text for text in below if text not in MISSING]
        if not below or not all(_is_number(text, ".") or _is_number(text, ",") for text in below):
            continue
        if _is_number(name, ".") or _is_number(name, ",") or name in MISSING - {""}:
            against += 1
        else:
            says += 1
    if says or against:
        return says > against
    if _numbers(cells) or len(set(cells)) < len(cells):
        return False
    again = sum(
        any(index < len(row) and row[index].strip() == name for row in body)
        for index, name in enumerate(cells)
    )
    return again == 0


def _numbers(cells: Sequence[str]) -> int:
    return sum(_is_number(text.strip(), ".") for text in cells)


def _is_number(text: str, decimal: str) -> bool:
    if decimal == ",":
        text = text.replace(",", ".") if "." not in text else "x"
    return PLAIN.fullmatch(text) is not None


def _has_decimal_comma(columns: Sequence[Sequence[str]]) -> bool:
    """Whether a column has numbers such as 1,5 and none has such as 1.5."""
    found = False
    for column in columns:
        if not column:
            continue
        if all(_is_number(text, ".") for text in column):
            if any("." in text for text in column):
                return False
        elif all(_is_number(text, ",") for text in column):
            form = number_form(column, comma_separates=False)
            found = found or form == COMMA_FORM
        elif all(number_reader(COMMA_FORM)(text) is not None for text in column):
            continue  # with thousands too: read as text, by its own form
    return found
