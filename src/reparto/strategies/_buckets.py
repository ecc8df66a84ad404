"""Gradients laid end to end in a few flat tensors, so that few messages carry them.

    flat   │ grad 5 │ grad 4 │ … │ present? 5 │ present? 4 │ … │ riders │
                                   └── one number a tensor: how many workers had a gradient

A tensor that no worker had a gradient for keeps ``None``, as optimizers skip those; one that
only some workers had a gradient for is zero on the others. No worker waits for a gradient that
another does not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.strategies._base import grad_of, set_grad

#: How many numbers can travel with the last bucket.
NUM_RIDERS = 4


class Bucket:
    """Some tensors of one type on one device, and the flat tensor that carries them.

    Args:
        indices: Positions of the tensors in their set.
        tensors: The tensors.
        num_riders: Free places at the end.
    """

    def __init__(self, indices: list[int], tensors: list[Tensor], num_riders: int) -> None:
        self.indices, self.tensors = indices, tensors
        self.offsets: list[int] = []
        self.size = 0
        for tensor in tensors:
            self.offsets.append(self.size)
            self.size += tensor.numel()
        self.num_riders = num_riders
        self.flat = self._fresh()
        self.filled: set[int] = set()
        self.work: Any = None

    def _fresh(self) -> Tensor:
        like = self.tensors[0]
        length = self.size + len(self.tensors) + self.num_riders
        return torch.zeros(length, dtype=like.dtype, device=like.device)

    def fill(self, slot: int) -> None:
        """Copy one gradient into its place."""
        if not self.filled and _is_shared(self.flat):
            self.flat = self._fresh()  # the script still holds last step's gradients
        grad = grad_of(self.tensors[slot])
        place = self._view(slot)
        with torch.no_grad():
            if grad is None:
                place.zero_()
            else:
                place.copy_(grad)
            self.flat[self.size + slot] = 0.0 if grad is None else 1.0
        self.filled.add(slot)

    def launch(self, group: Group, riders: Sequence[float] = ()) -> None:
        """Start the sum over workers."""
        for slot in range(len(self.tensors)):
            if slot not in self.filled:
                self.fill(slot)
        if self.num_riders:
            padded = [*riders, *[0.0] * (self.num_riders - len(riders))]
            tail = torch.tensor(padded, dtype=self.flat.dtype)
            self.flat[-self.num_riders :] = tail.to(self.flat.device)
        self.work = group.allreduce([self.flat])

    def finish(self) -> list[float]:
        """Wait, put the sums on the tensors, and return what rode along."""
        self.work.wait()
        tail = self.flat[self.size :].tolist()
        for slot, tensor in enumerate(self.tensors):
            if tail[slot] > 0:
                set_grad(tensor, self._view(slot))
        self.reset()
        return tail[len(self.tensors) :]

    def reset(self) -> None:
        """Forget what was filled and started."""
        self.filled.clear()
        self.work = None

    def _view(self, slot: int) -> Tensor:
        tensor, start = self.tensors[slot], self.offsets[slot]
        flat = self.flat[start : start + tensor.numel()]
        if tensor.is_contiguous():
            return flat.view(tensor.shape)
        # channels_last and the like: keep the tensor's own order of strides
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        inverse = [order.index(dim) for dim in range(tensor.dim())]
        return flat.view([tensor.shape[dim] for dim in order]).permute(inverse)


def make_buckets(tensors: Sequence[Tensor], cap_bytes: int) -> list[Bucket]:
    """Lay tensors into buckets, last tensor first: that is the order of a backward pass."""
    buckets: list[Bucket] = []
    groups: dict[Any, list[tuple[int, Tensor]]] = {}
    for index in reversed(range(len(tensors))):
        tensor = tensors[index]
        key = (tensor.dtype, tensor.device)
        group = groups.setdefault(key, [])
        held = sum(one.numel() * one.element_size() for _, one in group)
        if group and held + tensor.numel() * tensor.element_size() > cap_bytes:
            buckets.append(_bucket(group))
            group.clear()
        group.append((index, tensor))
    buckets.extend(_bucket(group) for group in groups.values() if group)
    return buckets


def _bucket(group: list[tuple[int, Tensor]]) -> Bucket:
    wide = group[0][1].dtype in (torch.float32, torch.float64)
    return Bucket([i for i, _ in group], [t for _, t in group], NUM_RIDERS if wide else 0)


def _is_shared(flat: Tensor) -> bool:
    storage = flat.untyped_storage()
    return bool(torch._C._storage_Use_Count(storage._cdata) > 2)
