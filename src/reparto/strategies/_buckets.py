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
from reparto.strategies.compressors import Compressor

#: How many numbers can travel with the last bucket.
NUM_RIDERS = 4

_tensor, _zeros = torch.tensor, torch.zeros  # as they are before the runtime watches the script's


class Bucket:
    """Some tensors of one type on one device, and the flat tensor that carries them.

    Args:
        indices: Positions of the tensors in their set.
        tensors: The tensors.
        num_riders: Free places at the end.
    """

    def __init__(self, indices: list[int], tensors: list[Tensor], num_riders: int) -> None:
        self.indices, self.tensors = indices, tensors
        self.layouts: list[tuple[list[int], list[int], int]] = []
        self.size = 0
        for tensor in tensors:
            self.layouts.append((list(tensor.shape), dense_strides(tensor), self.size))
            self.size += tensor.numel()
        self.num_riders = num_riders
        self.arrived: set[int] = set()
        self.work: Any = None
        self._allocate()

    def _allocate(self) -> None:
        like = self.tensors[0]
        length = self.size + len(self.tensors) + self.num_riders
        self.flat = _zeros(length, dtype=like.dtype, device=like.device)
        self._views = [self.flat.as_strided(*layout) for layout in self.layouts]
        self._tail = self.flat[self.size :]
        self._num_uses = num_uses(self.flat)

    def launch(self, group: Group, riders: Sequence[float] = ()) -> None:
        """Lay the gradients end to end and start the sum over workers."""
        self.fill(riders)
        self.work = group.allreduce([self.flat])

    def sum_by(self, compressor: Compressor, key: str, riders: Sequence[float] = ()) -> None:
        """Lay the gradients end to end and add them up, lossily; the tail exactly."""
        self.fill(riders)
        self.work = compressor.group.allreduce([self._tail])
        shapes = [shape for shape, _, _ in self.layouts]
        total = compressor.sum_over(self.flat[: self.size], shapes, key)
        self.flat[: self.size].copy_(total)

    def fill(self, riders: Sequence[float] = ()) -> None:
        """Lay the gradients end to end."""
        if num_uses(self.flat) > self._num_uses:
            self._allocate()  # the script still holds last step's gradients
        grads = [grad_of(tensor) for tensor in self.tensors]
        present = [0.0 if grad is None else 1.0 for grad in grads]
        padded = [*present, *riders, *[0.0] * (self.num_riders - len(riders))]
        with torch.no_grad():
            if all(present):
                torch._foreach_copy_(self._views, grads)  # type: ignore[arg-type]
            else:
                for view, grad in zip(self._views, grads, strict=True):
                    view.zero_() if grad is None else view.copy_(grad)
            self._tail.copy_(_tensor(padded, dtype=self.flat.dtype))

    def finish(self) -> list[float]:
        """Wait, put the sums on the tensors, and return what rode along."""
        self.work.wait()
        tail: list[float] = (self._tail.real if self._tail.is_complex() else self._tail).tolist()
        for tensor, layout, count in zip(self.tensors, self.layouts, tail, strict=False):
            if count > 0:
                set_grad(tensor, self.flat.as_strided(*layout))
        self.reset()
        return tail[len(self.tensors) :]

    def reset(self) -> None:
        """Forget what has arrived and was started."""
        self.arrived.clear()
        self.work = None


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


def dense_strides(tensor: Tensor) -> list[int]:
    """Strides without gaps; channels_last and the like keep their own order."""
    order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    if tensor.is_contiguous():
        order = list(range(tensor.dim()))
    strides, step = [0] * tensor.dim(), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= tensor.shape[dim]
    return strides


def num_uses(flat: Tensor) -> int:
    """How many tensors share the memory of this one."""
    return int(torch._C._storage_Use_Count(flat.untyped_storage()._cdata))
