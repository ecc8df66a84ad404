"""Reductions and whatever else works along named dimensions."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.comm import MAX, MIN
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
from reparto.runtime._rules._shape import global_shape
from reparto.runtime._tensors import GATHER, Shard, own_rows, summand

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
    dtype = kwargs.get("dtype")
    total = rows.sum(dims, keepdim=keepdim, dtype=dtype)
    count = prod(int(global_shape(world, tensor)[dim]) for dim in dims)
    return summand(total / count)


@named("max", "min", "amax", "amin", "any", "all")
def _extreme(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    name = func.__name__
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
    if second is not None or needs_grad or tensor.is_complex() or place.split.total == 0:
        return GATHER
    # A ghost row repeats a row of another worker, so it cannot change an extreme.
    world.impure("an extreme over the batch")
    extreme = func(tensor.as_subclass(Tensor)) if not place.split.is_ghost(world.rank) else None
    return _extreme_of_all(world, name, tensor, extreme)


def _extreme_of_all(world: World, name: str, tensor: Shard, extreme: Tensor | None) -> Any:
    is_flag = name in ("any", "all") or tensor.dtype is torch.bool
    high = name in ("max", "amax", "any")
    dtype = torch.int64 if is_flag or not tensor.is_floating_point() else torch.float64
    if extreme is None:
        bounds: Any = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        value = torch.tensor(bounds.min if high else bounds.max, dtype=dtype)
    else:
        value = extreme.detach().to(dtype)
    value = value.to(tensor.device).reshape(1).clone()
    world.data.reduce(value, MAX if high else MIN).wait()
    return value.reshape(()).to(torch.bool if is_flag else tensor.dtype)


def _reducing(position: int) -> Any:
    def rule(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
        tensor = args[0] if args else kwargs["input"]
        dim = argument(args, kwargs, position, "dim", "axis")
        if dim is None or isinstance(dim, bool) or not isinstance(tensor, Shard):
            return GATHER
        dims = normal_dims(dim, tensor.dim())
        if tensor._place.dim in dims:
            return GATHER
        keepdim = argument(args, kwargs, position + 1, "keepdim", default=False)
        if func.__name__ in ("var", "std", "var_mean", "std_mean"):
            keepdim = kwargs.get("keepdim", False)
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


for _name in "argmax argmin prod logsumexp median nanmedian mode var std var_mean std_mean".split():
    BY_NAME[_name] = _reducing(1)
for _name in "norm kthvalue quantile nanquantile".split():
    BY_NAME[_name] = _reducing(2)
for _name in "softmax log_softmax softmin cumsum cumprod logcumsumexp cummax cummin flip".split():
    BY_NAME[_name] = _along(1)
BY_NAME["argsort"] = BY_NAME["sort"] = BY_NAME["glu"] = BY_NAME["msort"] = _along(1, -1)
BY_NAME["topk"] = _along(2, -1)
BY_NAME["roll"] = _along(2)
BY_NAME["normalize"] = _along(2, 1)
BY_NAME["diff"] = _along(2, -1)


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


@named("gather", "take_along_dim")
def _gather(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    if func.__name__ == "gather":
        dim, index = argument(args, kwargs, 1, "dim"), argument(args, kwargs, 2, "index")
    else:
        index, dim = argument(args, kwargs, 1, "indices"), argument(args, kwargs, 2, "dim")
    if dim is None:
        return GATHER
    together = aligned(world, [tensor, index])
    if together is None or tensor.dim() != index.dim():
        return GATHER
    (local, local_index), _, place = together
    if normal_dim(dim, tensor.dim()) == place.dim:
        return GATHER
    return wrapped(world, torch.gather(local, dim, local_index), place)


@named("scatter", "scatter_add", "scatter_", "scatter_add_")
def _scatter(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, index = args[0], argument(args, kwargs, 2, "index")
    dim = argument(args, kwargs, 1, "dim")
    source = argument(args, kwargs, 3, "src", "value")
    if not isinstance(tensor, Shard) or "reduce" in kwargs:
        return GATHER
    together = aligned(world, [tensor, index, source])
    if together is None or normal_dim(dim, tensor.dim()) == together[2].dim:
        return GATHER
    _, local_index, local_source = together[0]
    result = func(tensor, dim, local_index, local_source)
    return tensor if func.__name__.endswith("_") else wrapped(world, result, together[2])


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
    rest_kwargs = {key: value for key, value in kwargs.items() if key not in ("x1", "x2")}
    result = func(a, b, *args[2:], **rest_kwargs)
    keepdim = bool(kwargs.get("keepdim", False))
    return wrapped(world, result, without_dims(place, (dim,), keepdim))

