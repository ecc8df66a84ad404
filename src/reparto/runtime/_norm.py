"""Batch normalisation with the statistics of the global batch, on any device.

torch's own ``SyncBatchNorm`` refuses the CPU. One gather in the forward pass (mean, variance and
count of every worker), one sum in the backward pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reparto.runtime._collective import sum_all, summed
from reparto.runtime._layout import Placement, effective

if TYPE_CHECKING:
    from reparto.runtime._world import World

plain_batch_norm = F.batch_norm


def batch_norm(
    world: World,
    place: Placement,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """``F.batch_norm`` of this worker's slice as if it saw the whole batch."""
    if world.apart and not _tells_nothing(input, place, world.rank):
        return plain_batch_norm(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )
    if not training or world.apart or world.options.sabotage == "stale-batchnorm":
        training = training and not world.apart  # a ghost tells nothing of the batch
        return plain_batch_norm(
            input, running_mean, running_var, weight, bias, training, momentum, eps
        )
    rows = effective(input, place, world.rank)
    mean, var, count = _statistics(world, rows, place)
    if count <= 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {input.size()}"
        )
    if running_mean is not None and running_var is not None:
        with torch.no_grad():
            unbiased = var * (count / (count - 1))
            running_mean.mul_(1 - momentum).add_(mean.to(running_mean.dtype), alpha=momentum)
            running_var.mul_(1 - momentum).add_(unbiased.to(running_var.dtype), alpha=momentum)
    normalize: Any = _Normalize.apply
    result: Tensor = normalize(input, mean, var, count, weight, bias, eps, world, place)
    return result


def _tells_nothing(input: Tensor, place: Placement, rank: int) -> bool:
    """Whether these rows have no statistics: a ghost, or a single value of each channel."""
    is_single = input.numel() // max(input.shape[1], 1) <= 1
    return place.split.is_ghost(rank) or is_single


def _statistics(world: World, rows: Tensor, place: Placement) -> tuple[Tensor, Tensor, int]:
    dims = [dim for dim in range(rows.dim()) if dim != 1]
    channels = rows.shape[1]
    local = rows.detach()
    wide = local.float() if local.dtype in (torch.float16, torch.bfloat16) else local
    here = wide.numel() // max(channels, 1)
    per_row = 1
    for size in rows.shape[2:]:
        per_row *= size
    counts = [place.outer * size * place.inner * per_row for size in place.split.sizes]
    message = wide.new_zeros(2, channels)
    if here:
        var, mean = torch.var_mean(wide, dims, correction=0)
        message[0], message[1] = mean, var
    parts = torch.stack(world.data.gather_all(message)).double()  # torch adds up in double, too
    total = sum(counts)
    share = torch.tensor(counts, dtype=parts.dtype, device=parts.device).div_(total).view(-1, 1)
    mean = (parts[:, 0] * share).sum(0)
    # Variance within the workers plus variance between them: no cancellation of large sums.
    var = ((parts[:, 1] + (parts[:, 0] - mean) ** 2) * share).sum(0)
    return mean.to(wide.dtype), var.to(wide.dtype), total


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        mean: Tensor,
        var: Tensor,
        count: int,
        weight: Tensor | None,
        bias: Tensor | None,
        eps: float,
        world: World,
        place: Placement,
    ) -> Tensor:
        ctx.save_for_backward(input, mean, var, weight)
        ctx.count, ctx.eps, ctx.world, ctx.place = count, eps, world, place
        output: Tensor = plain_batch_norm(input, mean, var, weight, bias, False, 0.0, eps)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        input, mean, var, weight = ctx.saved_tensors
        world: World = ctx.world
        if torch.is_grad_enabled() and (grad.requires_grad or input.requires_grad):
            return _differentiable_backward(ctx, grad, input, weight)
        shape = [1, -1] + [1] * (input.dim() - 2)
        dims = [dim for dim in range(input.dim()) if dim != 1]
        scale = torch.rsqrt(var + ctx.eps)
        centred = input - mean.to(input.dtype).view(shape)
        ghost = ctx.place.split.is_ghost(world.rank)
        if ghost:
            grad = torch.zeros_like(grad)
        grad_sum = grad.sum(dims)
        grad_dot = (grad * centred).sum(dims)
        both = summed(torch.stack([grad_sum, grad_dot]), world.data) / ctx.count
        factor = scale if weight is None else scale * weight
        slope = (both[1] * scale * scale).view(shape)
        grad_input = (grad - both[0].view(shape) - centred * slope) * factor.view(shape)
        if ghost:
            grad_input = torch.zeros_like(grad_input)
        grad_weight = None if weight is None else grad_dot * scale
        grad_bias = grad_sum if ctx.needs_input_grad[5] else None
        return grad_input.to(input.dtype), None, None, None, grad_weight, grad_bias, *[None] * 3


def _differentiable_backward(ctx: Any, grad: Tensor, input: Tensor, weight: Tensor | None) -> Any:
    """The same backward pass, written in operations that can be differentiated again."""
    world: World = ctx.world
    shape = [1, -1] + [1] * (input.dim() - 2)
    dims = [dim for dim in range(input.dim()) if dim != 1]
    live = 0.0 if ctx.place.split.is_ghost(world.rank) else 1.0
    rows = input * live
    mean = sum_all(rows.sum(dims), world.data) / ctx.count
    centred = (input - mean.view(shape)) * live
    var = sum_all((centred * centred).sum(dims), world.data) / ctx.count
    scale = torch.rsqrt(var + ctx.eps)
    grad = grad * live
    grad_sum, grad_dot = grad.sum(dims), (grad * centred).sum(dims)
    both = sum_all(torch.stack([grad_sum, grad_dot]), world.data) / ctx.count
    factor = scale if weight is None else scale * weight
    slope = (both[1] * scale * scale).view(shape)
    grad_input = (grad - both[0].view(shape) - centred * slope) * factor.view(shape) * live
    grad_weight = None if weight is None else grad_dot * scale
    grad_bias = grad_sum if ctx.needs_input_grad[5] else None
    return grad_input, None, None, None, grad_weight, grad_bias, *[None] * 3
