"""Operations that move dimensions about without touching values."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._layout import BatchInt, Placement
from reparto.runtime._rules._base import (
    aligned,
    argument,
    named,
    normal_dim,
    normal_dims,
    settled,
    wrapped,
)
from reparto.runtime._tensors import GATHER, Shard

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def global_shape(world: World, tensor: Shard) -> list[int]:
    """The shape that a Shard presents."""
    place = tensor._place
    shape = list(tensor.shape)
    if place.outer == 1:
        shape[place.dim] = BatchInt.of(place.split, place.inner, world.used_as_number)
    else:
        shape[place.dim] = place.length
    return shape


@named("shape.__get__")
def _shape(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return torch.Size(global_shape(world, args[0]))


@named("size")
def _size(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    shape = global_shape(world, args[0])
    dim = argument(args, kwargs, 1, "dim")
    return torch.Size(shape) if dim is None else shape[dim]


@named("__len__")
def _len(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    world.impure("len() of a shared-out tensor")
    return int(global_shape(world, args[0])[0])


@named("numel", "nelement")
def _numel(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    place = args[0]._place
    if place.outer != 1:
        return prod(int(size) for size in global_shape(world, args[0]))
    rest = prod(size for dim, size in enumerate(args[0].shape) if dim != place.dim)
    return BatchInt.of(place.split, place.inner, world.used_as_number) * rest


@named("stride")
def _stride(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    shape = [int(size) for size in global_shape(world, args[0])]
    strides = tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))
    dim = argument(args, kwargs, 1, "dim")
    return strides if dim is None else strides[dim]


def _sizes(args: Args, kwargs: Kwargs, name: str) -> list[int]:
    if len(args) > 2:
        return list(args[1:])
    given = args[1] if len(args) == 2 else kwargs[name]
    return [given] if isinstance(given, int) else list(given)


@named("view", "reshape")
def _view(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    if not isinstance(tensor, Shard):
        return GATHER
    if len(args) == 2 and isinstance(args[1], torch.dtype):
        return GATHER
    name = "size" if "size" in kwargs else "shape"
    return reshaped(world, tensor, _sizes(args, kwargs, name))


@named("flatten")
def _flatten(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    if not isinstance(tensor, Shard):
        return GATHER
    ndim = tensor.dim()
    start = normal_dim(argument(args, kwargs, 1, "start_dim", default=0), ndim)
    end = normal_dim(argument(args, kwargs, 2, "end_dim", default=-1), ndim)
    shape = global_shape(world, tensor)
    merged: Any = 1
    for size in shape[start : end + 1]:
        merged = size if merged == 1 and type(merged) is int else merged * size
    return reshaped(world, tensor, [*shape[:start], merged, *shape[end + 1 :]])


@named("unflatten")
def _unflatten(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    if not isinstance(tensor, Shard):
        return GATHER
    dim = normal_dim(argument(args, kwargs, 1, "dim"), tensor.dim())
    sizes = list(argument(args, kwargs, 2, "sizes"))
    shape = global_shape(world, tensor)
    return reshaped(world, tensor, [*shape[:dim], *sizes, *shape[dim + 1 :]])


def reshaped(world: World, tensor: Shard, goal: list[int]) -> Any:
    """Reshape by global sizes; keeps the sharing-out if one new dimension holds the batch."""
    place = tensor._place
    shape = [int(size) for size in global_shape(world, tensor)]
    if -1 in goal:
        known = prod(int(size) for size in goal if size != -1)
        if known == 0:
            return GATHER
        missing = prod(shape) // known
        found = _placed(shape, place, [missing if size == -1 else int(size) for size in goal])
    else:
        found = _placed(shape, place, [int(size) for size in goal])
    if found is None:
        return GATHER
    said = goal[found.dim]
    if said != -1 and not isinstance(said, BatchInt) and found.length != 1:
        world.impure("a batch size is written out in a view")
    local = [int(size) for size in goal]
    local[found.dim] = found.local_length(world.rank)
    if -1 in local:  # with the batch named, the free size can be computed on the slice
        rest = prod(size for size in local if size != -1)
        numel = prod(tensor.shape)
        local[local.index(-1)] = numel // rest if rest else 0
    return wrapped(world, tensor.as_subclass(Tensor).reshape(local), found, tensor._site)


def _placed(shape: list[int], place: Placement, goal: list[int]) -> Placement | None:
    if prod(shape) != prod(goal):
        return None
    # Rows before the batch factor and after it, counted over the whole tensor.
    outer = place.outer * prod(shape[: place.dim])
    inner = place.inner * prod(shape[place.dim + 1 :])
    total = place.split.total
    before = 1
    for dim, size in enumerate(goal):
        after = prod(goal[dim + 1 :])
        if outer % before == 0 and inner % max(after, 1) == 0:
            rest_outer, rest_inner = outer // before, inner // max(after, 1)
            if rest_outer * total * rest_inner == size and (total > 1 or size == 1):
                return Placement(place.split, dim, rest_outer, rest_inner)
        before *= size
    return None


@named("permute")
def _permute(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    dims = [normal_dim(dim, tensor.dim()) for dim in _sizes(args, kwargs, "dims")]
    result = tensor.as_subclass(Tensor).permute(dims)
    return wrapped(world, result, tensor._place.at(dims.index(tensor._place.dim)), tensor._site)


@named("transpose", "swapaxes", "swapdims", "transpose_")
def _transpose(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    one = normal_dim(argument(args, kwargs, 1, "dim0", "axis0"), tensor.dim())
    two = normal_dim(argument(args, kwargs, 2, "dim1", "axis1"), tensor.dim())
    return _swapped(world, tensor, one, two)


@named("t", "T.__get__", "mT.__get__", "adjoint", "H.__get__", "mH.__get__")
def _t(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    if tensor.dim() < 2:
        return tensor
    if tensor.dim() > 2 and getattr(func, "__self__", None) is not None:
        name = getattr(func.__self__, "__name__", "")
        if name == "T":
            dims = list(range(tensor.dim()))[::-1]
            place = tensor._place.at(dims.index(tensor._place.dim))
            return wrapped(world, tensor.as_subclass(Tensor).permute(dims), place, tensor._site)
    if tensor.is_complex():
        return GATHER
    return _swapped(world, tensor, tensor.dim() - 2, tensor.dim() - 1)


def _swapped(world: World, tensor: Shard, one: int, two: int) -> Any:
    dim = {one: two, two: one}.get(tensor._place.dim, tensor._place.dim)
    result = tensor.as_subclass(Tensor).transpose(one, two)
    return wrapped(world, result, tensor._place.at(dim), tensor._site)


@named("movedim", "moveaxis")
def _movedim(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    local = tensor.as_subclass(Tensor)
    source = argument(args, kwargs, 1, "source")
    target = argument(args, kwargs, 2, "destination")
    # Where the dimension went is read off a tensor whose sizes are its own dimension numbers.
    numbered = torch.empty([dim + 1 for dim in range(local.dim())]).movedim(source, target)
    where = list(numbered.shape).index(tensor._place.dim + 1)
    return wrapped(world, local.movedim(source, target), tensor._place.at(where))


@named("unsqueeze", "unsqueeze_")
def _unsqueeze(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    dim = argument(args, kwargs, 1, "dim")
    dim = dim + tensor.dim() + 1 if dim < 0 else dim
    place = tensor._place.at(tensor._place.dim + (dim <= tensor._place.dim))
    return wrapped(world, tensor.as_subclass(Tensor).unsqueeze(dim), place, tensor._site)


@named("squeeze", "squeeze_")
def _squeeze(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    place, ndim = tensor._place, tensor.dim()
    given = argument(args, kwargs, 1, "dim")
    dims = normal_dims(given, ndim)
    if place.dim in dims:
        if place.length == 1:
            return GATHER
        world.impure("squeeze() would drop a batch of one")
        dims = tuple(dim for dim in dims if dim != place.dim)
    gone = [dim for dim in dims if tensor.shape[dim] == 1]
    result = tensor.as_subclass(Tensor).squeeze(gone) if gone else tensor.as_subclass(Tensor)
    moved = place.at(place.dim - sum(dim < place.dim for dim in gone))
    return wrapped(world, result, moved, tensor._site)


@named("expand", "broadcast_to")
def _expand(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    sizes = _sizes(args, kwargs, "size")
    if not isinstance(tensor, Shard):
        return GATHER
    place = tensor._place
    shift = len(sizes) - tensor.dim()
    local = [int(size) for size in sizes]
    local[place.dim + shift] = -1
    if any(isinstance(size, BatchInt) for i, size in enumerate(sizes) if i != place.dim + shift):
        return GATHER
    return wrapped(world, tensor.as_subclass(Tensor).expand(local), place.at(place.dim + shift))


@named("repeat", "tile")
def _repeat(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    times = _sizes(args, kwargs, "repeats")
    if len(times) < tensor.dim():
        return GATHER
    shift = len(times) - tensor.dim()
    place = tensor._place
    if any(isinstance(time, BatchInt) for time in times) or times[place.dim + shift] != 1:
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
    tensors = [settled(world, part) for part in argument(args, kwargs, 0, "tensors")]
    dim = argument(args, kwargs, 1, "dim", "axis", default=0)
    ndim = max(part.dim() for part in tensors)
    dim = normal_dim(dim, ndim)
    if any(part.dim() != ndim for part in tensors):
        return GATHER
    together = aligned(world, tensors)
    if together is None:
        return GATHER
    local, _, place = together
    if place.dim == dim:
        return GATHER
    return wrapped(world, torch.cat(local, dim), place)


@named("stack")
def _stack(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensors = argument(args, kwargs, 0, "tensors")
    dim = argument(args, kwargs, 1, "dim", default=0)
    together = aligned(world, [settled(world, part) for part in tensors])
    if together is None:
        return GATHER
    local, ndim, place = together
    dim = dim + ndim + 1 if dim < 0 else dim
    return wrapped(world, torch.stack(local, dim), place.at(place.dim + (dim <= place.dim)))


@named("split", "chunk", "unbind", "tensor_split", "split_with_sizes")
def _parts(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs.get("input", kwargs.get("tensor"))
    position = 1 if func.__name__ == "unbind" else 2
    dim = normal_dim(argument(args, kwargs, position, "dim", default=0), tensor.dim())
    place = tensor._place
    if dim == place.dim:
        return GATHER
    rest = args[1:]
    result = func(tensor.as_subclass(Tensor), *rest, **kwargs) if args else GATHER
    if result is GATHER:
        return GATHER
    if func.__name__ == "unbind":
        place = place.at(place.dim - (dim < place.dim))
    return wrapped(world, result, place)


@named("narrow")
def _narrow(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    dim = normal_dim(argument(args, kwargs, 1, "dim"), tensor.dim())
    if dim == tensor._place.dim:
        return GATHER
    return wrapped(world, func(tensor.as_subclass(Tensor), *args[1:], **kwargs), tensor._place)


@named("select")
def _select(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    dim = normal_dim(argument(args, kwargs, 1, "dim"), tensor.dim())
    place = tensor._place
    if dim == place.dim:
        return GATHER
    result = func(tensor.as_subclass(Tensor), *args[1:], **kwargs)
    return wrapped(world, result, place.at(place.dim - (dim < place.dim)))


@named("unfold")
def _unfold(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    if tensor._place.dim != 0 or (isinstance(args[1], int) and len(args) == 4 and args[1] == 0):
        return GATHER
    if tensor.dim() < 2:
        return GATHER
    return wrapped(world, func(tensor.as_subclass(Tensor), *args[1:], **kwargs), tensor._place)


@named("diagonal", "diag_embed")
def _diagonal(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return GATHER


@named("tril", "triu")
def _triangle(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    if tensor._place.dim >= tensor.dim() - 2:
        return GATHER
    return wrapped(world, func(tensor.as_subclass(Tensor), *args[1:], **kwargs), tensor._place)
