"""Reductions and whatever else works along named dimensions."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.comm import MAX
from reparto.runtime._mirrors import wrote
from reparto.runtime._rules._base import (
    BY_NAME,
    aligned,
    argument,
    named,
    normal_dim,
    normal_dims,
    without_dims,
    wrapped,
)
from reparto.runtime._rules._shape import given_sizes, global_shape, numbers
from reparto.runtime._tensors import GATHER, Cell, Shard, own_rows, summand

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _local_call(func: Any, tensor: Shard, args: Args, kwargs: Kwargs) -> Any:
    if args:
        return func(tensor.as_subclass(Tensor), *args[1:], **kwargs)
    return func(**{**kwargs, "input": tensor.as_subclass(Tensor)})


@named("sum", "nansum", "mean", "nanmean", "count_nonzero")
def _sum(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    given = argument(args, kwargs, 1, "dim", "axis")
    if isinstance(given, torch.dtype):
        return GATHER
    dims = normal_dims(given, tensor.dim())
    keepdim = bool(argument(args, kwargs, 2, "keepdim", "keepdims", default=False))
    place = tensor._place
    if place.dim not in dims:
        result = _local_call(func, tensor, args, kwargs)
        return wrapped(world, result, without_dims(place, dims, keepdim))
    if func.__name__ == "nanmean":
        return GATHER
    world.impure("a sum over the batch")
    rows = own_rows(world, tensor)
    if func.__name__ != "mean":
        if args:
            return summand(func(rows, *args[1:], **kwargs))
        return summand(func(**{**kwargs, "input": rows}))
    shape = numbers(global_shape(world, tensor))
    count = prod(shape[dim] for dim in dims)
    if not count:
        return GATHER
    total = rows.sum(dims, keepdim=keepdim, dtype=kwargs.get("dtype"))
    return summand(total / count, Cell(total.detach()), 1 / count)


@named("max", "min", "amax", "amin", "any", "all")
def _extreme(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    second = argument(args, kwargs, 1, "dim", "axis", "other")
    if isinstance(second, Tensor):
        together = aligned(world, [tensor, second])
        return GATHER if together is None else wrapped(world, func(*together[0]), together[2])
    if not isinstance(tensor, Shard):
        return GATHER
    place = tensor._place
    dims = normal_dims(second, tensor.dim())
    if place.dim not in dims:
        keepdim = bool(argument(args, kwargs, 2, "keepdim", default=False))
        result = _local_call(func, tensor, args, kwargs)
        return wrapped(world, result, without_dims(place, dims, keepdim))
    needs_grad = tensor.requires_grad and torch.is_grad_enabled()
    if second is not None or needs_grad or kwargs:
        return GATHER
    world.impure("an extreme over the batch")
    here = None if place.split.is_ghost(world.rank) else func(tensor.as_subclass(Tensor))
    return _extreme_of_all(world, func.__name__ in ("max", "amax", "any"), tensor, here, func)


def _extreme_of_all(
    world: World, is_high: bool, tensor: Shard, here: Tensor | None, func: Any
) -> Tensor:
    """The extreme of every worker's; sent as a maximum, and beside it whether one is no number."""
    is_flag = tensor.dtype is torch.bool or func.__name__ in ("any", "all")
    dtype = torch.float64 if tensor.is_floating_point() else torch.int64
    lowest = -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min
    message = torch.tensor([lowest, 0], dtype=dtype, device=tensor.device)
    if here is not None:
        value = here.detach().to(dtype)
        is_odd = value.isnan()
        # ~x turns the order of whole numbers around and cannot overflow, as -x could.
        turned = value if is_high else (-value if dtype.is_floating_point else ~value)
        message[0], message[1] = torch.where(is_odd, lowest, turned), is_odd
    world.data.reduced(message, MAX)
    value, is_odd = message
    value = value if is_high else (-value if dtype.is_floating_point else ~value)
    value = torch.where(is_odd > 0, torch.nan, value) if dtype.is_floating_point else value
    return value.to(torch.bool if is_flag else tensor.dtype)


def _reducing(position: int, keepdim_at: int | None = None) -> Any:
    """A rule for reductions that take their dimension at a position."""

    def rule(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
        tensor = args[0] if args else kwargs["input"]
        dim = argument(args, kwargs, position, "dim", "axis")
        if dim is None or isinstance(dim, bool) or not isinstance(tensor, Shard):
            return GATHER
        dims = normal_dims(dim, tensor.dim())
        several = any(isinstance(value, Tensor) for value in [*args[1:], *kwargs.values()])
        if tensor._place.dim in dims or several:
            return GATHER
        keepdim = argument(args, kwargs, keepdim_at or position + 1, "keepdim", "keepdims")
        result = _local_call(func, tensor, args, kwargs)
        return wrapped(world, result, without_dims(tensor._place, dims, bool(keepdim)))

    return rule


def _along(position: int, default: Any = None) -> Any:
    def rule(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
        tensor = args[0] if args else kwargs["input"]
        dim = argument(args, kwargs, position, "dim", "axis", "dims", default=default)
        if dim is None or isinstance(dim, torch.dtype) or not isinstance(tensor, Shard):
            return GATHER
        if tensor._place.dim in normal_dims(dim, tensor.dim()):
            return GATHER
        if any(isinstance(value, Shard) for value in [*args[1:], *kwargs.values()]):
            return GATHER
        return wrapped(world, _local_call(func, tensor, args, kwargs), tensor._place, tensor._site)

    return rule


for _name in "argmax argmin prod logsumexp median nanmedian mode".split():
    BY_NAME[_name] = _reducing(1)
for _name in "var std var_mean std_mean".split():
    BY_NAME[_name] = _reducing(1, keepdim_at=3)
for _name in "norm kthvalue quantile nanquantile linalg_vector_norm".split():
    BY_NAME[_name] = _reducing(2)
for _name in "softmax log_softmax softmin cumsum cumprod logcumsumexp cummax cummin".split():
    BY_NAME[_name] = _along(1)
BY_NAME["argsort"] = BY_NAME["sort"] = BY_NAME["glu"] = _along(1, -1)
BY_NAME["topk"] = _along(2, -1)
BY_NAME["roll"] = _along(2)
BY_NAME["normalize"] = _along(2, 1)
_diff = _along(2, -1)


@named("diff")
def _diff_alone(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    others = (*args[1:], *kwargs.values())
    return (
        GATHER
        if any(isinstance(one, Tensor) for one in others)
        else _diff(world, func, args, kwargs)
    )


@named("flip")
def _flip(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    dims = normal_dims(given_sizes(args, kwargs, "dims"), tensor.dim())
    if tensor._place.dim in dims:
        return GATHER
    return wrapped(world, tensor.as_subclass(Tensor).flip(dims), tensor._place, tensor._site)


@named("index_select")
def _index_select(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, index = args[0], argument(args, kwargs, 2, "index")
    dim = normal_dim(argument(args, kwargs, 1, "dim"), tensor.dim())
    if isinstance(tensor, Shard):
        if isinstance(index, Shard) or dim == tensor._place.dim:
            return GATHER
        return wrapped(world, tensor.as_subclass(Tensor).index_select(dim, index), tensor._place)
    result = tensor.index_select(dim, index.as_subclass(Tensor))
    return wrapped(world, result, index._place.at(dim))


def _row_by_row(world: World, dim: int, tensors: list[Any]) -> tuple[list[Any], Any] | None:
    """Line up tensors with as many rows as the batch: nothing is broadcast, rows stay rows."""
    place = next(one._place for one in tensors if isinstance(one, Shard))
    others = [one for one in tensors if isinstance(one, Tensor) and not isinstance(one, Shard)]
    if any(one.dim() <= place.dim or one.shape[place.dim] != place.length for one in others):
        return None
    together = aligned(world, tensors)
    if together is None or together[2] != place or normal_dim(dim, together[1]) == place.dim:
        return None
    return together[0], place


@named("gather")
def _gather(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, index = args[0], argument(args, kwargs, 2, "index")
    dim = argument(args, kwargs, 1, "dim")
    together = _row_by_row(world, dim, [tensor, index])
    if together is None or argument(args, kwargs, 3, "sparse_grad"):
        return GATHER
    (local, local_index), place = together
    return wrapped(world, torch.gather(local, dim, local_index), place)


@named("scatter", "scatter_add", "scatter_", "scatter_add_")
def _scatter(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, index = args[0], argument(args, kwargs, 2, "index")
    dim = argument(args, kwargs, 1, "dim")
    source = argument(args, kwargs, 3, "src", "value")
    if not isinstance(tensor, Shard) or "reduce" in kwargs or len(args) > 4:
        return GATHER
    together = _row_by_row(world, dim, [tensor, index, source])
    if together is None:
        return GATHER
    (local, local_index, local_source), place = together
    if not func.__name__.endswith("_"):
        return wrapped(world, func(local, dim, local_index, local_source), place)
    func(tensor, dim, local_index, local_source)
    wrote(world, tensor)
    return tensor


@named("cosine_similarity", "pairwise_distance")
def _pairs(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    one, two = argument(args, kwargs, 0, "x1"), argument(args, kwargs, 1, "x2")
    cosine = func.__name__ == "cosine_similarity"
    dim = argument(args, kwargs, 2, "dim", default=1) if cosine else -1
    together = aligned(world, [one, two])
    if together is None:
        return GATHER
    (a, b), ndim, place = together
    dim = normal_dim(dim, ndim)
    if dim == place.dim:
        return GATHER
    rest = {key: value for key, value in kwargs.items() if key not in ("x1", "x2")}
    result = func(a, b, *args[2:], **rest)
    return wrapped(world, result, without_dims(place, (dim,), result.dim() == ndim))
