"""Dialect: how a file of values is written, inferred from its first lines."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reparto.search._tables._forms import COMMA_FORM, MISSING, PLAIN, number_form, number_reader
from reparto.search._tables._source import unique_names

#: In the order in which they are preferred, where several would do.
DELIMITERS = ("\t", ";", "|", ",", " ")
#: Any number of spaces and tabs part columns.
BLANKS = "blanks"
_NAMES = {"\t": "tabs", ";": "';'", "|": "'|'", ",": "','", " ": "spaces", BLANKS: "blanks"}
_YEAR = re.compile(r"(19|20)\d\d")
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
        num_skipped: Lines before the first row, or before the line of names: empty ones, comments.
        has_rows: Whether there is more than the line of names.
        has_names: Whether the line of names comes after these; else it is the last comment.
        quote: What values in quotes are between.
        has_quotes: Whether a value in quotes was seen.
        row_bytes: About so many a row.
    """

    delimiter: str
    names: tuple[str, ...]
    width: int
    decimal: str
    are_text: tuple[bool, ...]
    num_skipped: int
    has_rows: bool
    has_names: bool
    quote: str
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
    num_skipped, said, comment = _preamble(sample)
    body_text = "".join(sample.splitlines(keepends=True)[num_skipped:])
    quote = _quote(body_text)
    delimiter = said or _delimiter(body_text, quote)
    rows = rows_of(body_text, delimiter, quote=quote) or [[""]]
    widths = Counter(len(row) for row in rows[1:] or rows)
    width = max(widths, key=lambda count: (widths[count], count))
    above = rows_of(comment, delimiter, quote=quote)
    has_names = True
    if above and len(above[0]) == width > 1 and not _is_header(rows[0], rows[1:], known):
        rows, has_names = [above[0], *rows], False
    body, first = rows[1:], rows[0]
    names: tuple[str, ...] = ()
    if not has_names:
        names = tuple(first)
    elif len(first) == width - 1 and all(len(row) < width or not row[-1] for row in body):
        names = (*first, "")  # each row but that of names ends with what parts columns
    elif len(first) == width - 1 and not _numbers(first) and _name_rows(body):
        names = ("", *first)  # as R writes them: none above the names of the rows
    elif _is_header(first, body, known):
        names = tuple(first)
        width = len(first) if not body else width
    values = body if names else rows
    columns = [[row[it].strip() for row in values if it < len(row)] for it in range(width)]
    shown = [[text for text in column if text not in MISSING] for column in columns]
    decimal = "," if delimiter != "," and _has_decimal_comma(shown) else "."
    return Dialect(
        delimiter,
        tuple(name.strip().strip("\ufeff").strip() for name in names),
        width,
        decimal,
        tuple(not all(_is_number(text, decimal) for text in column) for column in shown),
        num_skipped,
        bool(values),
        has_names and bool(names),
        quote,
        quote in body_text,
        len(sample) / max(1, sample.count("\n")),
    )


def _preamble(sample: str) -> tuple[int, str, str]:
    """How many lines come before the rows, what they say parts columns, and the last comment."""
    said = comment = ""
    for number, line in enumerate(sample.splitlines()):
        bare = line.strip().lstrip("\ufeff")
        if bare.startswith("#"):
            comment = bare.lstrip("#").strip()
        elif bare.lower().startswith("sep=") and len(bare) == 5 and not number:
            said = bare[4]  # as Excel writes it
        elif bare:
            return number, said, comment
    return 0, "", ""


def _quote(text: str) -> str:
    """What values in quotes are between: a single one only where there is no double one."""
    single = re.findall(r"(?m)(?:^|[,;|\t ])'[^'\n]*'(?=[,;|\t \r]|$)", text)
    return "'" if '"' not in text and 2 * len(single) > text.count("\n") else '"'


def _name_rows(body: Sequence[Sequence[str]]) -> bool:
    """Whether the first column tells the rows apart."""
    firsts = [row[0] for row in body]
    return len(firsts) > 1 and len(set(firsts)) == len(firsts)


def rows_of(
    text: str, delimiter: str, most: int = _MOST_ROWS, *, quote: str = '"'
) -> list[list[str]]:
    """The values of the first rows; a row that cannot be understood ends them."""
    if delimiter == BLANKS:
        text = re.sub(r"(?m)^ | $", "", re.sub(r"[ \t\r]+", " ", text))
        delimiter = " "
    found: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote):
            if row and (len(row) > 1 or row[0].strip()):
                found.append(row)
            if len(found) >= most:
                break
    except csv.Error:  # a value longer than the reader takes
        found = found or [[text[:100]]]
    return found


def _delimiter(sample: str, quote: str) -> str:
    best, best_score, best_width = ",", (0.0, 0), 0
    candidates = list(DELIMITERS)
    if re.search(r"[^\s][ \t]{2,}[^\s]", sample) or re.search(r"(?m)^ +[^\s]", sample):
        candidates[-1] = BLANKS
    for place, delimiter in enumerate(candidates):
        rows = rows_of(sample, delimiter, 300, quote=quote)
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
        return bool(set(known) & set(unique_names(cells, []))) and bool(
            {*known} & {*cells} or not _numbers(cells)
        )
    if not body:
        return not any(_is_number(text, ".") for text in cells)
    if len(cells) > 3 and cells in _counted(len(cells)):
        return True  # as pandas writes columns that have no names
    says, against = 0, 0
    for index, name in enumerate(cells):
        below = [row[index].strip() for row in body if index < len(row)]
        below = [text for text in below if text not in MISSING]
        if not below or not all(_is_number(text, ".") or _is_number(text, ",") for text in below):
            continue
        if _is_number(name, ".") or _is_number(name, ",") or name in MISSING - {""}:
            is_year = _YEAR.fullmatch(name) is not None and not any(map(_YEAR.fullmatch, below))
            says, against = says + is_year, against + (not is_year)
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


def _counted(width: int) -> tuple[list[str], list[str]]:
    """Names of columns that are but counted, without and with one for the rows."""
    return [str(it) for it in range(width)], ["", *(str(it) for it in range(width - 1))]


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
