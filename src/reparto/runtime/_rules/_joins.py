"""Putting tensors together and taking them apart: the batch is left alone, or is what repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._layout import BatchInt, Placement, number
from reparto.runtime._rules._base import (
    aligned,
    argument,
    exactly,
    named,
    normal_dim,
    viewed,
    wrapped,
)
from reparto.runtime._rules._shape import given_sizes
from reparto.runtime._tensors import GATHER, Shard

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@named("repeat", "tile")
def _repeat(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    times = given_sizes(args, kwargs, "repeats" if func.__name__ == "repeat" else "dims")
    shift = len(times) - tensor.dim()
    place = tensor._place
    if shift < 0 or any(isinstance(time, BatchInt) for time in times):
        return GATHER
    if times[place.dim + shift] != 1:
        return GATHER
    return wrapped(world, tensor.as_subclass(Tensor).repeat(times), place.at(place.dim + shift))


@named("repeat_interleave")
def _repeat_interleave(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    times = argument(args, kwargs, 1, "repeats")
    dim = argument(args, kwargs, 2, "dim")
    if not isinstance(tensor, Shard) or type(times) is not int or dim is None:
        return GATHER
    place = tensor._place
    result = tensor.as_subclass(Tensor).repeat_interleave(times, dim=dim)
    if normal_dim(dim, tensor.dim()) == place.dim:
        place = Placement(place.split, place.dim, place.outer, place.inner * times)
    return wrapped(world, result, place)


@named("cat", "concat", "concatenate")
def _cat(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensors = list(argument(args, kwargs, 0, "tensors"))
    ndim = max(part.dim() for part in tensors)
    dim = normal_dim(argument(args, kwargs, 1, "dim", "axis", default=0), ndim)
    if any(part.dim() != ndim for part in tensors) or kwargs.get("out") is not None:
        return GATHER
    if all(isinstance(part, Shard) and part._place.dim == dim for part in tensors):
        return _end_to_end(world, tensors, dim)
    if any(isinstance(part, Shard) and part._place.dim == dim for part in tensors):
        return GATHER
    together = aligned(world, tensors)
    if together is None:
        return GATHER
    local, _, place = together
    return wrapped(world, torch.cat(local, dim), place)


def _end_to_end(world: World, tensors: list[Shard], dim: int) -> Any:
    """Batches one after the other, two views of each image for instance: rows of the outside."""
    place = tensors[0]._place
    alike = all(
        one._place.split == place.split and one._place.inner == place.inner for one in tensors
    )
    if not alike:
        return GATHER
    outer = sum(one._place.outer for one in tensors)
    result = torch.cat([one.as_subclass(Tensor) for one in tensors], dim)
    return wrapped(world, result, Placement(place.split, dim, outer, place.inner))


@named("broadcast_tensors")
def _broadcast(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensors = args[0] if isinstance(args[0], (list, tuple)) else args
    together = aligned(world, list(tensors))
    if together is None:
        return GATHER
    return wrapped(world, torch.broadcast_tensors(*together[0]), together[2])


@named("stack")
def _stack(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensors = argument(args, kwargs, 0, "tensors")
    dim = argument(args, kwargs, 1, "dim", default=0)
    together = aligned(world, list(tensors))
    if together is None:
        return GATHER
    local, ndim, place = together
    dim = dim + ndim + 1 if dim < 0 else dim
    return wrapped(world, torch.stack(local, dim), place.at(place.dim + (dim <= place.dim)))


@named("split", "chunk", "unbind", "tensor_split", "split_with_sizes")
def _parts(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    if not args:
        return GATHER
    tensor, place = args[0], args[0]._place
    position = 1 if func.__name__ == "unbind" else 2
    dim = normal_dim(argument(args, kwargs, position, "dim", default=0), tensor.dim())
    if dim == place.dim:
        return _batches_apart(world, func, args, kwargs)
    result = func(tensor.as_subclass(Tensor), *args[1:], **kwargs)
    if func.__name__ == "unbind":
        place = place.at(place.dim - (dim < place.dim))
    return viewed(world, result, place, tensor)


def _batches_apart(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    """Take apart what was put end to end, if every part is one batch or several."""
    tensor, place = args[0], args[0]._place
    given = argument(args, kwargs, 1, "split_size_or_sections", "split_size", "chunks")
    if place.outer == 1 or func.__name__ not in ("split", "chunk") or not isinstance(given, int):
        return GATHER
    if func.__name__ == "split" and not isinstance(given, BatchInt):
        world.impure("a batch size is written out in split")
    rows = number(given) if func.__name__ == "split" else -(-place.length // number(given))
    one = place.split.total * place.inner
    if rows % one or place.length % rows:
        return GATHER
    outer = rows // one
    parts = tensor.as_subclass(Tensor).split(
        outer * place.split.rows(world.rank) * place.inner, place.dim
    )
    return wrapped(world, parts, Placement(place.split, place.dim, outer, place.inner))


@named("narrow")
def _narrow(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    dim = normal_dim(argument(args, kwargs, 1, "dim"), tensor.dim())
    if dim == tensor._place.dim:
        return GATHER
    result = func(tensor.as_subclass(Tensor), *args[1:], **kwargs)
    return viewed(world, result, tensor._place, tensor)


@named("select")
def _select(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    dim = normal_dim(argument(args, kwargs, 1, "dim"), tensor.dim())
    place = tensor._place
    if dim == place.dim:
        return GATHER
    result = func(tensor.as_subclass(Tensor), *args[1:], **kwargs)
    return viewed(world, result, place.at(place.dim - (dim < place.dim)), tensor)


@exactly(Tensor.unfold)
def _windows(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    dim = normal_dim(argument(args, kwargs, 1, "dimension"), tensor.dim())
    if dim == tensor._place.dim:
        return GATHER
    return wrapped(world, func(tensor.as_subclass(Tensor), *args[1:], **kwargs), tensor._place)


@named("tril", "triu")
def _triangle(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    if tensor._place.dim >= tensor.dim() - 2:
        return GATHER
    return wrapped(world, func(tensor.as_subclass(Tensor), *args[1:], **kwargs), tensor._place)
