"""How a dimension is shared out over workers.

A global dimension of ``outer × total × inner`` rows is shared out along ``total``, the batch:

    (T, B, C) shared out along B        view(T * B, C)
    dim=1 outer=1 inner=1         ──►   dim=0 outer=T inner=1
    (B, T, C) shared out along B        view(B * T, C)
    dim=0 outer=1 inner=1         ──►   dim=0 outer=1 inner=T

so that flattening batch with time, which every language model does before its loss, keeps the
tensor shared out. A worker with no rows holds one *ghost* row: layers run on it as usual, and
whatever leaves the worker (sums, gathers, statistics) leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Split:
    """How ``total`` rows are shared out: worker ``r`` has ``sizes[r]`` of them, in order."""

    total: int
    sizes: tuple[int, ...]

    def rows(self, rank: int) -> int:
        """Rows that a worker holds, the ghost row included."""
        return self.sizes[rank] or 1

    def is_ghost(self, rank: int) -> bool:
        """Whether a worker has no rows of its own."""
        return self.sizes[rank] == 0

    def start(self, rank: int) -> int:
        """First row of a worker."""
        return sum(self.sizes[:rank])


@lru_cache(maxsize=4096)
def split_evenly(total: int, num_workers: int) -> Split:
    """Share out rows so that no two workers differ by more than one."""
    base, more = divmod(total, num_workers)
    return Split(total, tuple(base + (rank < more) for rank in range(num_workers)))


@dataclass(frozen=True, slots=True)
class Placement:
    """Which dimension of a tensor is shared out, and how."""

    split: Split
    dim: int
    outer: int = 1
    inner: int = 1

    def at(self, dim: int) -> Placement:
        """The same sharing-out at another dimension."""
        return self if dim == self.dim else replace(self, dim=dim)

    @property
    def length(self) -> int:
        """Global size of the dimension."""
        return self.outer * self.split.total * self.inner

    def local_length(self, rank: int) -> int:
        """Size of the dimension on one worker, ghost rows included."""
        return self.outer * self.split.rows(rank) * self.inner

    def same_rows(self, other: Placement) -> bool:
        """Whether two dimensions are shared out alike, wherever they stand."""
        return (
            self.split == other.split and self.outer == other.outer and self.inner == other.inner
        )


def take(whole: Tensor, place: Placement, rank: int) -> Tensor:
    """A worker's slice of a replicated tensor; a view where that is possible."""
    split, dim, inner = place.split, place.dim, place.inner
    start = 0 if split.is_ghost(rank) else split.start(rank)
    rows = split.rows(rank)
    if place.outer == 1:
        return whole.narrow(dim, start * inner, rows * inner)
    folded: Tensor = whole.unflatten(dim, (place.outer, split.total * inner))
    return folded.narrow(dim + 1, start * inner, rows * inner).flatten(dim, dim + 1)


def effective(local: Tensor, place: Placement, rank: int) -> Tensor:
    """A worker's slice without its ghost row."""
    return local.narrow(place.dim, 0, 0) if place.split.is_ghost(rank) else local


class BatchInt(int):
    """A size that follows the batch; remembers how it is shared out.

    ``x.size(0)`` of a shared-out tensor is the *global* size, and a BatchInt: handed to
    ``torch.zeros`` or ``view`` it says which dimension is the batch, so nothing has to be
    guessed from a number. ``on_arithmetic`` is told when the number itself is used; the rules
    read it with ``number``, which tells nobody.
    """

    split: Split
    outer: int
    inner: int
    on_arithmetic: Any

    @classmethod
    def of(cls, split: Split, outer: int, inner: int, on_arithmetic: Any) -> BatchInt:
        """Make one for ``outer * split.total * inner`` rows."""
        made = cls(outer * split.total * inner)
        made.split, made.outer, made.inner = split, outer, inner
        made.on_arithmetic = on_arithmetic
        return made

    def __mul__(self, other: Any) -> Any:
        if type(other) is int and other > 0:
            return BatchInt.of(self.split, self.outer, self.inner * other, self.on_arithmetic)
        self.on_arithmetic()
        return int.__mul__(self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.__mul__(other)

    def __floordiv__(self, other: Any) -> Any:
        if type(other) is int and other > 0:
            if self.inner % other == 0:
                inner = self.inner // other
                return BatchInt.of(self.split, self.outer, inner, self.on_arithmetic)
            if self.outer % other == 0:
                outer = self.outer // other
                return BatchInt.of(self.split, outer, self.inner, self.on_arithmetic)
        self.on_arithmetic()
        return int.__floordiv__(self, other)

    def __eq__(self, other: object) -> bool:
        # Sizes of one batch are equal on every slice, or on none: that says nothing of numbers.
        if not (isinstance(other, BatchInt) and other.split == self.split):
            self.on_arithmetic()
        return int.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    __hash__ = int.__hash__

    def __reduce__(self) -> Any:
        return (int, (number(self),))

    def __deepcopy__(self, memo: Any) -> int:
        return number(self)


def number(size: int) -> int:
    """A size as a plain number."""
    return int.__int__(size)


def _counted(name: str) -> Any:
    plain = getattr(int, name)

    def method(self: BatchInt, *args: Any) -> Any:
        self.on_arithmetic()
        return plain(self, *args)

    return method


for _name in (
    "__add__ __radd__ __sub__ __rsub__ __truediv__ __rtruediv__ __rfloordiv__ __mod__ __rmod__ "
    "__divmod__ __rdivmod__ __pow__ __rpow__ __neg__ __abs__ __float__ __int__ __lt__ __le__ "
    "__gt__ __ge__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __lshift__ __rlshift__ "
    "__rshift__ __rrshift__ __invert__ __round__ __repr__ __str__ __format__"
).split():
    setattr(BatchInt, _name, _counted(_name))
