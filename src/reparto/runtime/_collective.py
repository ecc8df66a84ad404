"""Sums and gathers over workers that gradients flow through.

The objective of a run is J = J₀ + J₁ + … + Jₙ₋₁, one term a worker, and every worker's backward
pass starts from its own term. Then, whatever was computed in between,

    forward                 backward (of J with respect to this worker's input)
    y = Σ xᵣ                dx = Σ dyᵣ           SumAll   ◄──► SumAll
    y = [x₀ x₁ … xₙ₋₁]      dx = (Σ dyᵣ)[mine]   Gather   ◄──► Spread

and the gradient of a replicated parameter is the sum of what the workers hold. A replicated loss
L enters as L/n on every worker. Each function's backward is another one of them, so second
derivatives (gradient penalties) work too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.runtime._layout import Placement, effective, take


def summed(tensor: Tensor, group: Group) -> Tensor:
    """A fresh tensor with the sum over workers; no gradient."""
    whole = tensor.detach()
    if whole.dtype in _WIDER or whole.is_complex():
        return _summed_indirectly(whole, group)
    return group.sum(whole.clone(memory_format=torch.contiguous_format))


#: Types that not every backend adds, and those they are added in. Fixed here, once: ``verify``
#: gives the names in ``torch`` another meaning.
_WIDER = {
    torch.bool: torch.int64,
    torch.bfloat16: torch.float32,
    torch.float16: torch.float32,
}


def _summed_indirectly(tensor: Tensor, group: Group) -> Tensor:
    if tensor.is_complex():
        return torch.view_as_complex(summed(torch.view_as_real(tensor), group))
    return group.sum(tensor.to(_WIDER[tensor.dtype], copy=True)).to(tensor.dtype)


def gathered(local: Tensor, place: Placement, group: Group) -> Tensor:
    """The whole tensor, put together from every worker's slice; no gradient."""
    rank, split, dim = group.rank(), place.split, place.dim
    rows = effective(local.detach(), place, rank)
    shape = list(local.shape)
    shape[dim] = place.length
    whole = torch.empty(shape, dtype=local.dtype, device=local.device)
    folded = whole
    if place.outer > 1:
        rows = rows.unflatten(dim, (place.outer, split.sizes[rank] * place.inner))
        folded = whole.unflatten(dim, (place.outer, split.total * place.inner))
        dim += 1
    counts = [size * place.inner for size in split.sizes]
    parts = group.gather_rows(_sendable(rows.movedim(dim, 0).contiguous()), counts)
    start = 0
    for part, count in zip(parts, counts, strict=True):
        folded.narrow(dim, start, count).copy_(_received(part, local).movedim(0, dim))
        start += count
    return whole


def _sendable(tensor: Tensor) -> Tensor:
    """Not every backend knows flags and complex numbers."""
    if tensor.dtype is torch.bool:
        return tensor.view(torch.uint8)
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _received(part: Tensor, like: Tensor) -> Tensor:
    if like.dtype is torch.bool:
        return part.view(torch.bool)
    return torch.view_as_complex(part) if like.is_complex() else part


def sum_all(tensor: Tensor, group: Group) -> Tensor:
    """Sum over workers, of a tensor that each of them has a term of."""
    return _apply(SumAll, tensor, group)


def gather(local: Tensor, place: Placement, group: Group) -> Tensor:
    """The whole tensor from every worker's slice."""
    return _apply(Gather, local, place, group)


def _apply(function: Any, *args: Any) -> Tensor:
    result: Tensor = function.apply(*args)
    return result


class SumAll(torch.autograd.Function):
    """Sum over workers, of a tensor that each of them has a term of."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group) -> Tensor:
        """Sum."""
        ctx.group = group
        return summed(tensor, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Sum."""
        return sum_all(grad, ctx.group), None


class Gather(torch.autograd.Function):
    """The whole tensor from slices."""

    @staticmethod
    def forward(ctx: Any, local: Tensor, place: Placement, group: Group) -> Tensor:
        """Gather."""
        ctx.place, ctx.group = place, group
        return gathered(local, place, group)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Sum and slice."""
        return _apply(Spread, grad, ctx.place, ctx.group), None, None


class Spread(torch.autograd.Function):
    """The sum over workers, of which each keeps its slice; a ghost row gets zeros."""

    @staticmethod
    def forward(ctx: Any, whole: Tensor, place: Placement, group: Group) -> Tensor:
        """Sum and slice."""
        ctx.place, ctx.group = place, group
        mine = take(summed(whole, group), place, group.rank())
        return torch.zeros_like(mine) if place.split.is_ghost(group.rank()) else mine.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Gather."""
        return gather(grad, ctx.place, ctx.group), None, None
