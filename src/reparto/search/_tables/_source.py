"""Source: a file of some format that gives its rows a chunk at a time, as often as it is asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from reparto.search._rows import Matrix

#: A `pyarrow.RecordBatch`: a chunk of rows, its columns in the order of the source's names.
Batch = Any


class ReadAgain(Exception):
    """What a source thought of its file was wrong; it knows better now, and is read anew."""


@dataclass
class Source(ABC):
    """A table whose rows have a value for each column.

    Attributes:
        path: Of the file.
        format: ``csv``, ``parquet``, ``arff``, ``numpy``.
        names: Of the columns, all different.
        has_names: Whether they are the file's own; else they are ``c0``, ``c1``, …
        blank: Columns above which the file has nothing, while others have a name.
        levels: Of columns for which the file says what values there can be.
        target: The column that is foretold as the file has it; empty if it says nothing of it.
        notes: What was inferred, for people.
    """

    path: Path
    format: str
    names: tuple[str, ...] = ()
    has_names: bool = True
    blank: frozenset[str] = frozenset()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    target: str = ""
    notes: list[str] = field(default_factory=list)

    @abstractmethod
    def chunks(self) -> Iterator[Batch]:
        """All rows, in order.

        Raises:
            ReadAgain: If something was seen that asks for another way of reading.
            UsageError: If the file cannot be read.
        """

    def want(self, columns: Mapping[str, bool]) -> None:
        """Say which columns are needed at all, and whether each is text; others may be left out.

        A source need not do anything about it.
        """
        del columns


@dataclass
class SparseChunk:
    """Some rows, of which only what is not zero is written.

    Attributes:
        x: A csr matrix, as wide as the chunk needs.
        label: What stands at the front of each row; None if nothing does.
    """

    x: Matrix
    label: NDArray[Any] | None = None


@dataclass
class SparseSource(ABC):
    """A table that leaves out what is zero.

    Attributes:
        path: Of the file.
        format: ``libsvm``, ``arff``, ``numpy``.
        names: Of the columns; empty if they only have numbers.
        label: What the value at the front of a row is called; empty if there is none.
        levels: Of columns of categories, whose values are then places of these.
        notes: What was inferred, for people.
    """

    path: Path
    format: str
    names: tuple[str, ...] = ()
    label: str = ""
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @abstractmethod
    def chunks(self) -> Iterator[SparseChunk]:
        """All rows, in order.

        Raises:
            UsageError: If the file cannot be read.
        """

    def name_of(self, column: int) -> str:
        """Of a column by its number."""
        return self.names[column] if self.names else f"c{column}"


def unique_names(names: list[str], notes: list[str]) -> tuple[str, ...]:
    """The same names, those that occur again with a number; empty ones by their place."""
    taken: set[str] = set()
    found, again = [], []
    wanted = {name for name in names if name}
    for index, name in enumerate(names):
        own, count = name or f"c{index}", 0
        while own in taken or (count and own in wanted):
            count += 1
            own = f"{name or f'c{index}'}.{count}"
        if count:
            again.append(own)
        taken.add(own)
        found.append(own)
    if again:
        notes.append(f"names that occur more than once were given a number: {listed(again)}")
    return tuple(found)


def listed(names: list[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    told = ", ".join(f"'{shortened(name)}'" for name in names[:most])
    return told if len(names) <= most else f"{told} and {len(names) - most} more"


def shortened(text: str, most: int = 40) -> str:
    """On one line, and not too long."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
