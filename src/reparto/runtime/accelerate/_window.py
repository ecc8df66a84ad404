"""Window: which rows of the data a step takes, moved on by the graph itself.

Batches of a pass are parts of one order, one behind another. The graph has the whole order in
memory of its own and the places at which the batch of now stands in it; each launch moves them on:

    order    4 1 7 3 │ 0 9 6 2 │ 8 5
    places           └ 4 5 6 7 ┘──────► behind each launch

So a step that takes the batch that is next needs nothing copied for it. Where the script takes
another one (a new pass, a batch that was left out), the window is seated anew.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Window:
    """Where the batches of a tape stand in the order of their pass.

    Args:
        index: Rows of a batch, a part of the order of a pass.
        places: Memory for the places; whoever launches adds `advance` to it each time.
        advance: By how many rows batches of two steps are apart.

    Attributes:
        next: The batch that the next launch takes if nothing is done; None if it is none.
    """

    def __init__(self, index: Tensor, places: Tensor, advance: int) -> None:
        self._order = _whole(index).clone()
        self._seated: Tensor | None = None  # held, so that its memory is not another order's
        self._steps = torch.arange(len(index), device=index.device)
        self._places, self._stride = places, advance // len(index)
        self._batches: list[Tensor] = []
        self._at = self._end = 0
        self.next: Tensor | None = None
        self.rest()

    def rest(self) -> None:
        """Stand at the beginning, where any launch finds rows."""
        self.next, self._end = None, 0
        self._places.copy_(self._steps)

    def rows(self) -> Tensor:
        """The rows of now; on the device."""
        return self._order.index_select(0, self._places)

    def seat(self, index: Tensor, batches: list[Tensor], at: int) -> None:
        """Let the next launch take this batch.

        Args:
            index: Its rows.
            batches: All of its pass.
            at: Which of them it is, if it is one.
        """
        order = _whole(index)
        is_part = 0 <= at < len(batches) and batches[at] is index
        if not is_part or len(order) > len(self._order):
            self.rest()
            self._order[: len(index)].copy_(index)
            self._seated = None
            return
        if self._seated is None or self._seated.data_ptr() != order.data_ptr():
            self._order[: len(order)].copy_(order)
            self._seated = order
        torch.add(self._steps, int(index.storage_offset()), out=self._places)
        self._batches, self._at = batches, at
        # The last batch of a pass may have fewer rows.
        self._end = len(batches) - (batches[-1].shape != index.shape)
        self.next = index

    def go_on(self) -> None:
        """It was launched."""
        self._at += self._stride
        self.next = self._batches[self._at] if self._at < self._end else None


def advance_of(one: Tensor, two: Tensor) -> int:
    """By how many rows two batches of a pass are apart in its order; 0 if they are of two."""
    are_parts = one.dim() == two.dim() == 1 and one.is_contiguous() and two.is_contiguous()
    if not are_parts or one.shape != two.shape or one.dtype is not torch.int64 or not len(one):
        return 0
    if one.untyped_storage().data_ptr() != two.untyped_storage().data_ptr():
        return 0
    apart = int(two.storage_offset()) - int(one.storage_offset())
    return apart if apart > 0 and apart % len(one) == 0 else 0


def _whole(index: Tensor) -> Tensor:
    """All of the memory of which it is a part."""
    return torch.empty(0, dtype=index.dtype, device=index.device).set_(index.untyped_storage())
