"""CSV and its like: values with something between them, a row a line."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from typing import Any

from reparto.errors import UsageError
from reparto.search._tables._dialect import BLANKS, Dialect, rows_of, sniff
from reparto.search._tables._forms import MISSING
from reparto.search._tables._source import (
    Batch,
    ReadAgain,
    Source,
    listed,
    shortened,
    unique_names,
)
from reparto.search._tables._text import Blocks, Text, imported, settle_encoding

#: A block has so many rows at least, and so many bytes within these limits.
_ROWS, _LEAST_BYTES, _MOST_BYTES = 2000, 4 << 20, 256 << 20
_COLUMN = re.compile(r"In CSV column #(\d+): .*?invalid value '(.*)'", re.DOTALL)


class CsvSource(Source):
    """A file of values with something between them.

    Args:
        text: The file.
        known: Names of columns that are looked for, if more rows of a known table are read.
    """

    def __init__(self, text: Text, known: tuple[str, ...] = ()) -> None:
        settle_encoding(text)
        _refuse_other(text)
        dialect = sniff(text.sample, known)
        notes: list[str] = []
        names = dialect.names or tuple(f"c{index}" for index in range(dialect.width))
        super().__init__(
            text.path, "csv", unique_names(list(names), notes), bool(dialect.names), notes=notes
        )
        self.blank = frozenset(
            own for own, name in zip(self.names, dialect.names, strict=False) if not name
        )
        self._text, self._dialect = text, dialect
        self._texts = {it for it, is_text in enumerate(dialect.are_text) if is_text}
        self._wanted: set[int] | None = None
        rows = rows_of(text.sample, dialect.delimiter, quote=dialect.quote)
        self._newlines = dialect.has_quotes and any("\n" in it for row in rows for it in row)
        self._block_bytes = int(min(max(_ROWS * dialect.row_bytes, _LEAST_BYTES), _MOST_BYTES))
        packed = f", packed with {text.packed}" if text.packed else ""
        letters = "" if text.encoding == "utf-8" else f", letters in {text.encoding}"
        notes.insert(0, f"read as CSV: {dialect.told}{letters}{packed}")
        if len(dialect.names) != dialect.width and dialect.names:
            raise self._ragged()

    @property
    def dialect(self) -> Dialect:
        """How it is written."""
        return self._dialect

    def want(self, columns: Mapping[str, bool]) -> None:
        """Read these columns only, as text or as numbers."""
        self._wanted = {self.names.index(name) for name in columns}
        self._texts = {self.names.index(name) for name, is_text in columns.items() if is_text}

    def chunks(self) -> Iterator[Batch]:
        """All rows, in order."""
        pyarrow = imported()
        if self._text.is_whole and not self._dialect.has_rows:
            return
        reader = None
        try:
            with self._opened() as file:
                reader = pyarrow.csv.open_csv(file, *self._options(pyarrow))
                while True:
                    try:
                        batch = reader.read_next_batch()
                    except StopIteration:
                        return
                    yield batch.rename_columns(self._names_of(batch))
        except pyarrow.ArrowInvalid as error:
            self._understand(str(error))
            raise ReadAgain from error
        except (OSError, EOFError, UnicodeError) as error:
            if isinstance(error, UnicodeError):
                raise self._badly_written(str(error)) from error
            raise UsageError(
                f"{self.path} cannot be read to its end: {str(error).splitlines()[0]}",
                remedy="it is damaged, or was not copied as a whole: get it again",
            ) from error
        finally:
            if reader is not None:
                reader.close()

    def _names_of(self, batch: Batch) -> list[str]:
        return [self.names[int(name)] for name in batch.schema.names]

    def _opened(self) -> Any:
        if self._dialect.delimiter != BLANKS:
            return self._text.open()

        def change(block: bytes) -> bytes:
            return re.sub(rb"(?m)^ | $", b"", re.sub(rb"[ \t\r]+", b" ", block))

        return Blocks(self._text.blocks(), change)

    def _options(self, pyarrow: Any) -> tuple[Any, Any, Any]:
        dialect, csv_ = self._dialect, pyarrow.csv
        numbers = [str(index) for index in range(dialect.width)]
        text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        wanted = range(dialect.width) if self._wanted is None else sorted(self._wanted)
        encoding = self._text.encoding
        return (
            csv_.ReadOptions(
                column_names=numbers,
                skip_rows=dialect.num_skipped,
                skip_rows_after_names=int(dialect.has_names),
                block_size=self._block_bytes,
                encoding="utf8" if encoding in ("utf-8", "utf-8-sig") else encoding,
            ),
            csv_.ParseOptions(
                delimiter=" " if dialect.delimiter == BLANKS else dialect.delimiter,
                quote_char=dialect.quote,
                newlines_in_values=self._newlines,
            ),
            csv_.ConvertOptions(
                column_types={
                    str(it): text if it in self._texts else pyarrow.float64() for it in wanted
                },
                include_columns=[str(index) for index in wanted],
                null_values=sorted(MISSING),
                strings_can_be_null=True,
                decimal_point=dialect.decimal,
            ),
        )

    def _understand(self, told: str) -> None:
        """Learn from why a reading failed.

        Raises:
            UsageError: If the file is at fault.
        """
        found = _COLUMN.search(told)
        column = int(found.group(1)) if found else -1
        if found and column in range(self._dialect.width) and column not in self._texts:
            self._texts.add(column)
        elif "invalid UTF8" in told and self._text.encoding in ("utf-8", "utf-8-sig"):
            self._text.encoding = "latin-1"
            self.notes[0] += ", letters in latin-1"
        elif "straddling object" in told and self._block_bytes < _MOST_BYTES:
            self._block_bytes = min(4 * self._block_bytes, _MOST_BYTES)
        elif "straddling object" in told:
            raise UsageError(
                f"{self.path} has a line of more than {self._block_bytes >> 20} MiB, or but one",
                remedy="it is perhaps no table; give one with a row a line",
            )
        elif "Expected" in told and self._dialect.has_quotes and not self._newlines:
            self._newlines = True
        elif "Expected" in told:
            raise self._ragged()
        else:
            raise self._badly_written(told)

    def _badly_written(self, told: str) -> UsageError:
        return UsageError(
            f"{self.path}: {shortened(told, 200)}",
            remedy="look at that place of the file; or save it anew as CSV in UTF-8",
        )

    def _ragged(self) -> UsageError:
        """Say which line has another number of values than the first ones."""
        width, delimiter = self._dialect.width, self._dialect.delimiter
        if self._dialect.names and len(self._dialect.names) != width:
            return UsageError(
                f"{self.path}: the first line names {len(self._dialect.names)} columns, and the "
                f"rows have {width}: {listed(list(self._dialect.names))}",
                remedy="name each column, or leave the line of names out",
            )
        with self._text.lines() as lines:
            rows = (re.sub(r"[ \t]+", " ", it.strip()) for it in lines)
            is_blanks = delimiter == BLANKS
            for _ in range(self._dialect.num_skipped):
                next(lines)
            reader = csv.reader(
                rows if is_blanks else lines,
                delimiter=" " if is_blanks else delimiter,
                quotechar=self._dialect.quote,
            )
            number = 0
            try:
                for row in reader:
                    number += 1
                    if row and len(row) != width:
                        line = self._dialect.num_skipped + reader.line_num
                        told = shortened((" " if is_blanks else delimiter).join(row), 80)
                        return UsageError(
                            f"{self.path}, line {line}: {len(row)} values where {width} are "
                            f"expected: {told}",
                            remedy="correct the line, or put quotes around a value that has "
                            f"{'blanks' if is_blanks else repr(delimiter)} in it",
                        )
            except csv.Error as error:
                return UsageError(
                    f"{self.path}, after row {number}: {error}",
                    remedy="a quote is perhaps never closed",
                )
        return UsageError(
            f"{self.path}: some rows have not {width} values", remedy="a quote is never closed"
        )


def _refuse_other(text: Text) -> None:
    """Refuse what is text, and no table."""
    start = text.sample.lstrip("\ufeff \r\n\t")[:200].lower()
    if re.match(r'\{\s*"|\[\s*[{\["]', start):
        raise UsageError(f"{text.path} holds JSON", remedy="save the table in it as CSV")
    if start.startswith(("<!doctype", "<html", "<?xml")):
        raise UsageError(
            f"{text.path} holds a page of HTML or XML", remedy="get the table itself, as CSV"
        )
