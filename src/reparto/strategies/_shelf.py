"""What a worker keeps of tensors that are split over workers, and how they are put together.

memory of a tensor   │ worker 0's slice │ worker 1's slice │ worker 2's slice ░│  ░ padding
Kept                 this worker's slice, one flat tensor
Shelf                the few wholes that were looked at last
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from reparto.comm import Group, Stopwatch
from reparto.strategies._buckets import dense_strides

_empty_strided = torch.empty_strided  # as it is before the runtime watches the script's

#: Types that not every backend adds, and those they are added in. Fixed here, once: ``verify``
#: gives the names in ``torch`` another meaning.
WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


class Kept:
    """What this worker keeps of a tensor.

    Attributes:
        shelf: Where the whole stands while it is needed.
        mine: This worker's slice of the memory; the last workers may have less, or nothing.
        shape: Of the whole.
        strides: Of the whole; without gaps.
        number: Tells it from others, alike on every worker.
        unit: All that is gathered when this is, in this order; empty for itself alone. The same
            list for all of them.
    """

    def __init__(
        self,
        shelf: Shelf,
        mine: Tensor,
        shape: Sequence[int],
        strides: Sequence[int],
        number: int,
    ) -> None:
        self.shelf, self.mine = shelf, mine
        self.shape, self.strides = tuple(shape), tuple(strides)
        self.number = number
        self.unit: list[Kept] = []

    def alike(self, mine: Tensor) -> Kept:
        """Another tensor of the same shape and strides, which comes of this one."""
        return Kept(self.shelf, mine, self.shape, self.strides, 7 * self.number + 1)

    def is_like(self, other: Kept) -> bool:
        """Whether slices hold the same elements of both."""
        return self.shape == other.shape and self.strides == other.strides

    def cut(self, whole: Tensor) -> Tensor:
        """This worker's slice of a plain tensor of the same shape; a copy."""
        return self.shelf.cut(_ordered(whole, self))

    def written(self, view: Tensor) -> None:
        """Somebody has written into a view of the whole."""
        self.mine.copy_(self.cut(view.as_strided(self.shape, self.strides, 0)))
        self.shelf.changed(self)


class Shelf:
    """Wholes that were looked at lately, and how tensors are cut and put together.

    Args:
        group: The workers that keep slices.
        keep_bytes: How much may stand here; what one operation needs always may.
        waiting: Gives the stopwatch that runs while others are waited for.

    Attributes:
        trace: Of what was gathered, in which order; all workers must agree on it.
    """

    def __init__(
        self, group: Group, keep_bytes: int, waiting: Callable[[], Stopwatch] = Stopwatch
    ) -> None:
        self.group, self.keep_bytes, self._waiting = group, keep_bytes, waiting
        self.trace = 0
        self._together: list[Kept] = []
        self._numbers: dict[Any, dict[Kept, Tensor]] = {}
        self._wholes: OrderedDict[Kept, Tensor] = OrderedDict()
        self._held_bytes = 0
        self._num_kept = 0

    # Slices.

    def stretch(self, numel: int) -> int:
        """How many elements each worker has, the last ones aside."""
        return int(-(-numel // self.group.size()))

    def cut(self, whole: Tensor) -> Tensor:
        """This worker's slice of a plain tensor without gaps; a copy."""
        numel = whole.numel()
        length = self.stretch(numel)
        begin = min(numel, length * self.group.rank())
        flat = whole.detach().as_strided((numel,), (1,))
        return flat[begin : min(numel, begin + length)].clone()

    def keep(self, whole: Tensor) -> Kept:
        """Keep a slice of a plain tensor without gaps."""
        self._num_kept += 1
        return Kept(self, self.cut(whole), whole.shape, whole.stride(), self._num_kept)

    def scattered(self, term: Tensor, like: Kept) -> Tensor:
        """This worker's slice of the sum over workers of their terms."""
        wide = WIDER.get(term.dtype, term.dtype)
        flat = _ordered(term, like).as_strided((term.numel(),), (1,))
        length = self.stretch(term.numel())
        total = length * self.group.size()
        if flat.dtype != wide or flat.numel() < total:
            padded = flat.new_zeros(total, dtype=wide)
            padded[: flat.numel()].copy_(flat)
            flat = padded
        sums = flat.new_empty(length)
        with self._waiting():
            self.group._reduce_scatter_base(sums, flat).wait()
        return sums[: like.mine.numel()].to(term.dtype)

    # Wholes.

    def whole(self, kept: Kept) -> Tensor:
        """The whole, gathered unless it is here, and with it all of its unit.

        In which order an operation looks at weight and bias depends on the shape of its input,
        which differs between workers. In which order modules are called does not.
        """
        unit = kept.unit or [kept]
        missing = [one for one in unit if one not in self._wholes]
        if missing:
            self._make_room(sum(map(_bytes_of, missing)), unit)
        for one in missing:
            self._wholes[one] = self._gathered(one)
            self._held_bytes += _bytes_of(one)
        for one in unit:
            self._wholes.move_to_end(one)
        return self._wholes[kept]

    def _make_room(self, size_bytes: int, unit: list[Kept]) -> None:
        for one in list(self._wholes):
            if self._held_bytes + size_bytes <= self.keep_bytes:
                return
            if one not in unit:
                for other in one.unit or [one]:
                    self._drop(other)

    def _gathered(self, kept: Kept) -> Tensor:
        self.trace = (self.trace * 31 + kept.number) % 65521
        length = self.stretch(prod(kept.shape))
        mine = kept.mine
        if mine.numel() < length:
            mine = mine.new_zeros(length)
            mine[: kept.mine.numel()].copy_(kept.mine)
        flat = mine.new_empty(length * self.group.size())
        with self._waiting():
            self.group._allgather_base(flat, mine).wait()
        return flat.as_strided(kept.shape, kept.strides)

    def changed(self, kept: Kept) -> None:
        """A slice was written."""
        self._numbers.clear()
        self._drop(kept)

    def _drop(self, kept: Kept) -> None:
        if self._wholes.pop(kept, None) is not None:
            self._held_bytes -= _bytes_of(kept)

    def clear(self) -> None:
        """Drop everything: slices were written."""
        self._wholes.clear()
        self._numbers.clear()
        self._held_bytes = 0

    # Numbers.

    def ask_together(self, kept: list[Kept]) -> None:
        """If a number is asked of one of these, it will be asked of all; of gradients it is."""
        self._together = kept
        self._numbers.clear()

    def number(self, kept: Kept, name: Any, local: Callable[[Tensor], Tensor], op: Any) -> Tensor:
        """A number over all elements, from one a slice.

        Args:
            kept: Of what.
            name: Tells it from others.
            local: The number of a slice.
            op: How those of several slices are put together.
        """
        found = self._numbers.get(name, {})
        if kept not in found:
            mine = kept.mine
            alike = [one for one in self._together if one.mine.dtype == mine.dtype]
            asked = alike if kept in alike else [kept]
            numbers = torch.stack([local(one.mine) for one in asked])
            with self._waiting():
                self.group.reduce_all(numbers, op).wait()
            found = self._numbers[name] = dict(zip(asked, numbers.unbind(), strict=True))
        return found[kept].clone()


def _bytes_of(kept: Kept) -> int:
    return prod(kept.shape) * kept.mine.element_size()


def is_dense(tensor: Tensor) -> bool:
    """Whether its elements lie side by side, in whatever order."""
    return list(tensor.stride()) == dense_strides(tensor)


def dense(tensor: Tensor) -> Tensor:
    """Itself, or a copy whose elements lie side by side."""
    return tensor if is_dense(tensor) else tensor.contiguous()


def _ordered(whole: Tensor, like: Kept) -> Tensor:
    """A plain tensor with its elements in the order of another's."""
    if tuple(whole.stride()) == like.strides:
        return whole.detach()
    made = _empty_strided(like.shape, like.strides, dtype=whole.dtype, device=whole.device)
    return made.copy_(whole.detach())
