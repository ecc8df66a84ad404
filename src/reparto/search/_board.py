"""Board: a table laid out in memory that all workers of a machine read, and none copies.

    Board.put(table, layout, test)       rows are written once, in the order of the layout
      │ pickled: only where it lies, a few hundred bytes
      ├──► worker 0: board.seen() ──► Seen.train(fold), .tested(fold), .all(), .test: views
      └──► worker 1: …                                              nobody can write to them

The memory is a file without a name: it is gone with the last process that has it mapped, however
that ends. It does not count against the size of ``/dev/shm``, which is small in containers; where
it does not fit into memory either, it is a file on disk.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import FoldWindows, Layout, Matrix, Rows, Vector, Window, run_of
from reparto.search._shared_file import SharedFile
from reparto.spec import TableFacts

if TYPE_CHECKING:
    from reparto.search._tables import Table

#: Rows are laid out so many bytes at a time, so that no second copy of them is ever made.
CHUNK_BYTES = 32 << 20
#: Arrays begin at multiples of this: a line of a processor's cache.
_ALIGNED = 64
_TOKEN_BYTES = 64

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Plan:
    """What a board holds, without the arrays: small, and the same on every host.

    Attributes:
        facts: Of the table.
        folds: Where each is trained and tested.
        all: A run of rows where each row occurs once.
        num_columns: Of the table, which a csr matrix does not tell by itself.
        newest_first: Whether rows lie in the order of time.
    """

    facts: TableFacts
    folds: tuple[FoldWindows, ...]
    all: Window
    num_columns: int
    newest_first: bool = False


@dataclass(frozen=True)
class _Place:
    """Where an array lies in the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int


class Board:
    """A table laid out for workers; made by `put`, or by `of_arrays` on another host.

    It can be pickled: what is unpickled on the same machine finds the same memory, as long as the
    board is not closed. One made by `of_arrays` is pickled with its arrays.

    Attributes:
        plan: What it holds.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        file: SharedFile | None = None,
        places: Mapping[str, _Place] | None = None,
        arrays: Arrays | None = None,
    ) -> None:
        self.plan = plan
        self._file, self._places, self._own = file, dict(places or {}), arrays

    @classmethod
    def put(cls, table: Table, layout: Layout, test: Rows | None = None) -> Board:
        """Lay a table out.

        Args:
            table: Which one; it is not needed afterwards.
            layout: In which order.
            test: Rows that nobody sees before the end.

        Raises:
            UsageError: If there is room for it neither in memory nor on disk.
        """
        plan = Plan(
            table.facts, layout.folds, layout.all, int(table.x.shape[1]), layout.newest_first
        )
        groups = table.groups if layout.keeps_groups else None
        laid = Rows(table.x, table.y, groups)
        parts = [("", laid, np.asarray(layout.order, np.int64))]
        if test is not None:
            parts.append(("test_", test, np.arange(len(test), dtype=np.int64)))
        places: dict[str, _Place] = {}
        end = _TOKEN_BYTES
        for prefix, part, order in parts:
            for name, (dtype, shape) in _shapes(part, order).items():
                end = -(-end // _ALIGNED) * _ALIGNED
                places[prefix + name] = _Place(dtype.str, shape, end)
                end += dtype.itemsize * int(np.prod(shape))
        file = SharedFile.of_size(end)
        try:
            memory = file.writable()
            for prefix, part, order in parts:
                own = {
                    name.removeprefix(prefix): _array(memory, place)
                    for name, place in places.items()
                    if name.startswith("test_") == bool(prefix)
                }
                _lay_out(own, part, order)
        except BaseException:
            file.close()
            raise
        return cls(plan, file=file, places=places)

    @classmethod
    def of_arrays(cls, plan: Plan, arrays: Arrays) -> Board:
        """A board of arrays that came from another host: ``Board.of_arrays(b.plan, b.arrays())``.

        The arrays are used as they are, without a copy: those that ``ray.get`` gives lie in the
        memory that a node's workers share, and cannot be written to.
        """
        return cls(plan, arrays=dict(arrays))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All it holds, as views that cannot be written to, by name: what another host needs."""
        if self._own is not None:
            found = {name: value.view() for name, value in self._own.items()}
            for value in found.values():
                value.flags.writeable = False
            return found
        assert self._file is not None
        memory = self._file.readable()
        return {name: _array(memory, place) for name, place in self._places.items()}

    def seen(self) -> Seen:
        """The table, as a worker sees it. Each process calls it for itself.

        Raises:
            UsageError: If the board is closed, or lies on another host.
        """
        return Seen(self.plan, self.arrays())

    @property
    def num_bytes(self) -> int:
        """That it takes, once for all workers of this machine."""
        return sum(value.nbytes for value in self.arrays().values())

    def close(self) -> None:
        """Let go of it; what is seen already can be read on. Can be called twice."""
        if self._file is not None:
            self._file.close()


class Seen:
    """A table as a worker sees it: views of memory that is shared, and cannot be written to.

    Attributes:
        facts: Of the table.
        num_folds: Of cross-validation; 1 for a single split.
    """

    def __init__(self, plan: Plan, arrays: Arrays) -> None:
        self.facts, self.num_folds = plan.facts, len(plan.folds)
        self._plan = plan
        self._x = _matrix(arrays, "", plan.num_columns)
        self._y: Vector | None = arrays.get("y")
        self._groups: Vector | None = arrays.get("groups")
        has_test = "test_x" in arrays or "test_data" in arrays
        self._test = (
            Rows(_matrix(arrays, "test_", plan.num_columns), arrays.get("test_y"))
            if has_test
            else None
        )

    def train(self, fold: int) -> Rows:
        """What a fold is trained on."""
        return self._rows(self._plan.folds[fold].train)

    def tested(self, fold: int) -> Rows:
        """What a fold is tested on."""
        return self._rows(self._plan.folds[fold].test)

    def all(self) -> Rows:
        """Each row once."""
        return self._rows(self._plan.all)

    @property
    def test(self) -> Rows | None:
        """Rows that nobody sees before the end; None if there are none."""
        return self._test

    def _rows(self, window: Window) -> Rows:
        run = slice(window.start, window.stop)
        return Rows(
            run_of(self._x, window.start, window.stop),
            None if self._y is None else self._y[run],
            None if self._groups is None else self._groups[run],
            self._plan.newest_first,
        )


def _shapes(
    table: Rows, rows: NDArray[np.int64]
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    found: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
    x = table.x
    if isinstance(x, np.ndarray):
        found["x"] = (x.dtype, (len(rows), x.shape[1]))
    else:
        count = int(np.diff(x.indptr.astype(np.int64))[rows].sum())
        index = np.dtype(np.int32 if x.shape[1] <= np.iinfo(np.int32).max else np.int64)
        found["data"], found["indices"] = (x.dtype, (count,)), (index, (count,))
        found["indptr"] = (np.dtype(np.int64), (len(rows) + 1,))
    for name, values in (("y", table.y), ("groups", table.groups)):
        if values is not None:
            found[name] = (values.dtype, (len(rows),))
    return found


def _lay_out(own: Arrays, table: Rows, rows: NDArray[np.int64]) -> None:
    """Write the rows where they belong, a chunk at a time."""
    x = table.x
    for name, values in (("y", table.y), ("groups", table.groups)):
        if values is not None:
            own[name][:] = values[rows]
    if isinstance(x, np.ndarray):
        step = max(1, CHUNK_BYTES // max(1, x.itemsize * x.shape[1]))
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            np.take(x, part, axis=0, out=own["x"][start : start + step], mode="clip")
        return
    counts = np.diff(x.indptr.astype(np.int64))[rows]
    own["indptr"][0] = 0
    np.cumsum(counts, out=own["indptr"][1:])
    step = max(1, CHUNK_BYTES * len(rows) // max(1, 12 * int(counts.sum())))
    for start in range(0, len(rows), step):
        part = x[rows[start : start + step]]
        first = int(own["indptr"][start])
        own["data"][first : first + part.nnz] = part.data
        own["indices"][first : first + part.nnz] = part.indices


def _array(memory: mmap.mmap, place: _Place) -> NDArray[Any]:
    count = int(np.prod(place.shape))
    flat = np.frombuffer(memory, np.dtype(place.dtype), count, place.offset)
    return flat.reshape(place.shape)


def _matrix(arrays: Arrays, prefix: str, num_columns: int) -> Matrix:
    if f"{prefix}x" in arrays:
        return arrays[f"{prefix}x"]
    from reparto.search._rows import csr_of

    indptr = arrays[f"{prefix}indptr"]
    return csr_of(
        arrays[f"{prefix}data"], arrays[f"{prefix}indices"], indptr, (len(indptr) - 1, num_columns)
    )
