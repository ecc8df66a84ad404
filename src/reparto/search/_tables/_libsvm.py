"""libsvm: a label, and the values that are not zero, each with the number of its column."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np

from reparto.errors import UsageError
from reparto.search._tables._source import SparseChunk, SparseSource, shortened
from reparto.search._tables._text import Text

_PAIR = r"\d+:[^\s:]+"
_LINE = re.compile(rf"\s*[^\s:,;]+(\s+qid:\d+)?(\s+{_PAIR})*\s*(#.*)?")


def is_libsvm(text: Text) -> bool:
    """Whether its first lines are so."""
    lines = [it for it in text.sample.splitlines()[:50] if it.strip() and it.strip()[0] != "#"]
    return (
        bool(lines)
        and all(_LINE.fullmatch(line) for line in lines)
        and any(re.search(rf"\s{_PAIR}", line) for line in lines)
    )


class LibsvmSource(SparseSource):
    """A file in the form of libsvm and SVMlight. Columns are called by their numbers in it.

    So ``c1`` is what stands after ``1:``, whether the file counts from 0 or from 1.
    """

    def __init__(self, text: Text) -> None:
        super().__init__(text.path, "libsvm", label="label", notes=["read as libsvm"])
        self._text = text

    def chunks(self) -> Iterator[SparseChunk]:
        """All rows, in order."""
        from sklearn.datasets import load_svmlight_file

        line = 1
        for block in self._text.blocks():
            if line == 1:
                block = block.removeprefix(b"\xef\xbb\xbf")
            try:
                x, label = load_svmlight_file(io.BytesIO(block), zero_based=True)
            except (ValueError, OverflowError) as error:
                raise self._wrong(block, line, error) from error
            line += block.count(b"\n")
            yield SparseChunk(x, label)

    def _wrong(self, block: bytes, first: int, error: Exception) -> UsageError:
        """Say which line is wrong."""
        for number, line in enumerate(block.decode("utf-8", "replace").split("\n"), first):
            why = _why_wrong(line)
            if why:
                return UsageError(
                    f"{self.path}, line {number}: {why}: {shortened(line, 80)}",
                    remedy="a line is a label and pairs such as 3:1.5, in the order of their "
                    "numbers",
                )
        return UsageError(
            f"{self.path}, after line {first}: {error}", remedy="look at the lines after it"
        )


def _why_wrong(line: str) -> str:
    parts = line.split("#", 1)[0].split()
    if not parts:
        return ""
    if not _is_number(parts[0]):
        return f"the label {parts[0]!r} is no number"
    pairs = [it for it in parts[1:] if not it.startswith("qid:")]
    last = -1
    for pair in pairs:
        index, _, value = pair.partition(":")
        if not index.isdigit() or not _is_number(value):
            return f"{pair!r} is no number of a column with a value"
        if int(index) <= last:
            return f"column {index} comes after column {last}"
        if int(index) > np.iinfo(np.int32).max:
            return f"there is no column {index}"
        last = int(index)
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
