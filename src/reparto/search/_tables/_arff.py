"""ARFF: a header that says what each column is, then rows, in full or of what is not zero."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from reparto.errors import UsageError
from reparto.search._tables._forms import MISSING, number_reader
from reparto.search._tables._source import (
    Batch,
    ReadAgain,
    Source,
    SparseChunk,
    SparseSource,
    shortened,
    unique_names,
)
from reparto.search._tables._text import BLOCK_BYTES, Text, imported

_NAME = r"""(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|([^\s{]+))"""
_ATTRIBUTE = re.compile(rf"@attribute\s+{_NAME}\s*(.*)", re.IGNORECASE)
_ROWS = 20_000


@dataclass(frozen=True)
class _Header:
    """What stands above the rows."""

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    levels: Mapping[str, tuple[str, ...]]
    num_lines: int
    is_sparse: bool
    notes: tuple[str, ...]

    @property
    def target(self) -> str:
        """The column that is called the class, if there is one."""
        return next((it for it in self.names if it.lower() == "class"), "")


def is_arff(text: Text) -> bool:
    """Whether it begins so."""
    for line in text.sample.lstrip("\ufeff").splitlines():
        bare = line.strip()
        if bare and not bare.startswith("%"):
            return bare.lower().startswith(("@relation", "@attribute"))
    return False


def open_arff(text: Text) -> Source | SparseSource:
    """A file of Weka's.

    Raises:
        UsageError: If its header cannot be understood.
    """
    header = _header(text)
    return _SparseArff(text, header) if header.is_sparse else ArffSource(text, header)


class ArffSource(Source):
    """Rows in full."""

    def __init__(self, text: Text, header: _Header) -> None:
        notes = ["read as ARFF: the file says what each column is", *header.notes]
        super().__init__(text.path, "arff", header.names, levels=header.levels, notes=notes)
        self.target = header.target
        self._text, self._header = text, header
        self._is_plain = True

    def chunks(self) -> Iterator[Batch]:
        """All rows, in order."""
        return self._fast() if self._is_plain else self._slow()

    def _fast(self) -> Iterator[Batch]:
        """As CSV, which most files are."""
        pyarrow, header = imported(), self._header
        text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        numbers = [str(place) for place in range(len(header.names))]
        encoding = self._text.encoding
        csv = pyarrow.csv
        try:
            with (
                self._text.open() as file,
                csv.open_csv(
                    file,
                    csv.ReadOptions(
                        column_names=numbers,
                        skip_rows=header.num_lines,
                        block_size=BLOCK_BYTES,
                        encoding="utf8" if encoding in ("utf-8", "utf-8-sig") else encoding,
                    ),
                    csv.ParseOptions(quote_char="'", escape_char="\\"),
                    csv.ConvertOptions(
                        column_types={
                            number: pyarrow.float64() if kind == "number" else text
                            for number, kind in zip(numbers, header.kinds, strict=True)
                        },
                        null_values=sorted(MISSING),
                        strings_can_be_null=True,
                    ),
                ) as reader,
            ):
                for batch in reader:
                    self._check_plain(batch)
                    yield batch.rename_columns(list(header.names))
        except pyarrow.ArrowInvalid as error:  # comments, other quotes, or an error to be told
            self._is_plain = False
            raise ReadAgain from error

    def _check_plain(self, batch: Batch) -> None:
        for column in batch.columns:
            values = getattr(column, "dictionary", None)
            if values is not None and any(
                value.lstrip()[:1] in ("'", '"', "%", "{") for value in values.to_pylist() if value
            ):
                self._is_plain = False
                raise ReadAgain

    def _slow(self) -> Iterator[Batch]:
        """Line by line."""
        pyarrow, header = imported(), self._header
        readers = [number_reader("") if it == "number" else None for it in header.kinds]
        for rows in _chunks(_rows(self._text, header.num_lines)):
            columns: list[list[Any]] = [[] for _ in header.names]
            for number, values in rows:
                if len(values) != len(columns):
                    raise _ragged(self._text, number, values, len(columns))
                for column, value in zip(columns, values, strict=True):
                    column.append(value)
            arrays = []
            for place, read in enumerate(readers):
                own = columns[place]
                if read is None:
                    arrays.append(pyarrow.array(own, pyarrow.string()).dictionary_encode())
                    continue
                numbers = [np.nan if it in MISSING else read(it) for it in own]
                if None in numbers:
                    at = numbers.index(None)
                    raise UsageError(
                        f"{self.path}, line {rows[at][0]}: {own[at]!r} is no number, as "
                        f"'{header.names[place]}' is said to be",
                        remedy="correct the value, or write ? if there is none",
                    )
                arrays.append(pyarrow.array(np.array(numbers, np.float64)))
            yield pyarrow.record_batch(arrays, names=list(header.names))


class _SparseArff(SparseSource):
    """Rows of what is not zero: ``{3 1.5, 7 red}``. A level is the first one if it is left out."""

    def __init__(self, text: Text, header: _Header) -> None:
        notes = ["read as ARFF: only what is not zero is written", *header.notes]
        super().__init__(text.path, "arff", header.names, levels=header.levels, notes=notes)
        self._text, self._header = text, header

    def chunks(self) -> Iterator[SparseChunk]:
        """All rows, in order."""
        from scipy import sparse

        header = self._header
        places = [
            {level: float(it) for it, level in enumerate(header.levels[name])}
            if name in header.levels
            else None
            for name in header.names
        ]
        for rows in _chunks(_rows(self._text, header.num_lines)):
            data, indices, indptr = [], [], [0]
            for number, values in rows:
                for column, value in _pairs(self._text, number, values, len(places)):
                    found = _sparse_value(value, places[column])
                    if found is None:
                        raise UsageError(
                            f"{self.path}, line {number}: {value!r} is no value of "
                            f"'{header.names[column]}'",
                            remedy="correct the value, or its attribute in the header",
                        )
                    indices.append(column)
                    data.append(found)
                indptr.append(len(data))
            x = sparse.csr_matrix(
                (np.array(data, np.float64), np.array(indices, np.int32), np.array(indptr)),
                shape=(len(rows), len(places)),
            )
            x.sort_indices()
            yield SparseChunk(x)


def _sparse_value(value: str, places: Mapping[str, float] | None) -> float | None:
    if value in MISSING:
        return np.nan
    return number_reader("")(value) if places is None else places.get(value)


def _pairs(text: Text, number: int, values: list[str], width: int) -> Iterator[tuple[int, str]]:
    last = set()
    for pair in values:
        index, _, value = pair.strip().partition(" ")
        if not index.isdigit() or int(index) >= width or not value.strip() or index in last:
            raise UsageError(
                f"{text.path}, line {number}: {pair!r} is no column with a value",
                remedy=f"pairs such as 3 1.5, columns from 0 to {width - 1}, each one once",
            )
        last.add(index)
        yield int(index), _bare(value)


def _header(text: Text) -> _Header:
    names: list[str] = []
    kinds: list[str] = []
    levels: dict[int, tuple[str, ...]] = {}
    notes: list[str] = []
    with text.lines() as lines:
        number, is_data = 0, False
        for number, line in enumerate(lines, 1):
            bare = line.strip().lstrip("\ufeff")
            if bare.lower().startswith("@data"):
                is_data = True
                break
            if not bare.lower().startswith("@attribute"):
                continue
            found = _ATTRIBUTE.fullmatch(bare)
            if found is None or not found.group(4):
                raise UsageError(
                    f"{text.path}, line {number}: an attribute without a type: {shortened(bare)}",
                    remedy="@attribute NAME numeric, string, date, or {LEVEL, LEVEL}",
                )
            name = next(it for it in found.groups()[:3] if it is not None)
            kind, own = _kind(text, number, found.group(4).strip())
            if kind == "category":
                levels[len(names)] = own
            names.append(re.sub(r"\\(.)", r"\1", name))
            kinds.append(kind)
        first = next((it for it in lines if it.strip() and it.strip()[0] != "%"), "")
    if not is_data or not names:
        raise UsageError(
            f"{text.path} has no {'@data' if names else '@attribute'}",
            remedy="it is no whole ARFF file",
        )
    unique = unique_names(names, notes)
    by_name = {unique[place]: own for place, own in levels.items()}
    is_sparse = first.strip().startswith("{")
    return _Header(unique, tuple(kinds), by_name, number, is_sparse, tuple(notes))


def _kind(text: Text, number: int, told: str) -> tuple[str, tuple[str, ...]]:
    if told.startswith("{"):
        inner = told[1:].rsplit("}", 1)[0]
        return "category", tuple(it for it in _split(inner) if it not in MISSING)
    word = told.split()[0].lower()
    if word in ("numeric", "real", "integer"):
        return "number", ()
    if word in ("string", "date"):
        return "text", ()
    raise UsageError(
        f"{text.path}, line {number}: there is no type {shortened(told)!r} of attributes",
        remedy="numeric, string, date, or {LEVEL, LEVEL}",
    )


def _rows(text: Text, num_lines: int) -> Iterator[tuple[int, list[str]]]:
    """The values of each row, with the number of its line."""
    with text.lines() as lines:
        for number, line in enumerate(lines, 1):
            bare = line.strip()
            if number <= num_lines or not bare or bare[0] == "%":
                continue
            if bare[0] == "{":
                bare = bare[1:].rsplit("}", 1)[0]
                yield number, _split(bare, keeps=True) if bare.strip() else []
            elif "'" in bare or '"' in bare:
                yield number, _split(bare)
            else:
                yield number, [it.strip() for it in bare.split(",")]


_SPLIT = re.compile(r"""((?:[^,'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*)(?:,|$)""")


def _split(line: str, *, keeps: bool = False) -> list[str]:
    """Values with commas between them, some of them in quotes."""
    found, place = [], 0
    while place <= len(line):
        match = _SPLIT.match(line, place)
        if match is None:  # a quote that is never closed
            found += [it.strip() for it in line[place:].split(",")]
            break
        own = match.group(1).strip()
        found.append(own if keeps else _bare(own))
        place = match.end() + (match.end() == len(line) and not match.group().endswith(","))
        if match.end() == len(line) and match.group().endswith(","):
            found.append("")
            break
    return found


def _bare(value: str) -> str:
    own = value.strip()
    if len(own) > 1 and own[0] == own[-1] and own[0] in "'\"":
        own = re.sub(r"\\(.)", r"\1", own[1:-1])
    return own


def _chunks(
    rows: Iterator[tuple[int, list[str]]],
) -> Iterator[list[tuple[int, list[str]]]]:
    part: list[tuple[int, list[str]]] = []
    for row in rows:
        part.append(row)
        if len(part) >= _ROWS:
            yield part
            part = []
    if part:
        yield part


def _ragged(text: Text, number: int, values: list[str], width: int) -> UsageError:
    return UsageError(
        f"{text.path}, line {number}: {len(values)} values where {width} are expected: "
        f"{shortened(','.join(values), 80)}",
        remedy="correct the line, or put quotes around a value that has a comma in it",
    )
