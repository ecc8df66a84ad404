"""Operations that move dimensions about without touching values."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.errors import RefusedError
from reparto.runtime._layout import BatchInt, Placement, number
from reparto.runtime._rules._base import (
    argument,
    named,
    normal_dim,
    normal_dims,
    viewed,
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
    shape[place.dim] = BatchInt.of(place.split, place.outer, place.inner, world.used_as_number)
    return shape


@named("shape.__get__")
def _shape(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    _asked(world, args[0])
    return torch.Size(global_shape(world, args[0]))


def _asked(world: World, tensor: Shard) -> None:
    """The script asks for sizes: what it does with that of the batch has to be looked at."""
    if world.regions.watches:
        world.regions.watches[-1].dims.add(tensor._place.dim)


@named("size")
def _size(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    _asked(world, args[0])
    shape = global_shape(world, args[0])
    dim = argument(args, kwargs, 1, "dim")
    return torch.Size(shape) if dim is None else shape[dim]


@named("__len__")
def _len(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    world.impure("len() of a shared-out tensor")
    _asked(world, args[0])
    return number(global_shape(world, args[0])[0])


@named("numel", "nelement")
def _numel(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    _asked(world, args[0])
    return prod(global_shape(world, args[0]))


@named("stride")
def _stride(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    shape = numbers(global_shape(world, args[0]))
    strides = tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))
    dim = argument(args, kwargs, 1, "dim")
    return strides if dim is None else strides[dim]


def numbers(sizes: Sequence[int]) -> list[int]:
    """Sizes as plain numbers."""
    return [number(size) for size in sizes]


def given_sizes(args: Args, kwargs: Kwargs, name: str) -> list[int]:
    """Sizes that were given one by one or as a tuple."""
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
    return reshaped(world, tensor, given_sizes(args, kwargs, name))


@named("view_as", "reshape_as")
def _view_as(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, other = args[0], argument(args, kwargs, 1, "other")
    if not isinstance(tensor, Shard):
        return GATHER
    goal = global_shape(world, other) if isinstance(other, Shard) else list(other.shape)
    return reshaped(world, tensor, goal)


@named("flatten", "ravel")
def _flatten(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    ndim = tensor.dim()
    start = normal_dim(argument(args, kwargs, 1, "start_dim", default=0), ndim)
    end = normal_dim(argument(args, kwargs, 2, "end_dim", default=-1), ndim)
    shape = global_shape(world, tensor)
    shape[start : end + 1] = [prod(shape[start : end + 1])]
    return reshaped(world, tensor, shape)


@named("unflatten")
def _unflatten(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    dim = normal_dim(argument(args, kwargs, 1, "dim"), tensor.dim())
    sizes = list(argument(args, kwargs, 2, "sizes"))
    shape = global_shape(world, tensor)
    return reshaped(world, tensor, [*shape[:dim], *sizes, *shape[dim + 1 :]])


def reshaped(world: World, tensor: Shard, goal: list[int]) -> Any:
    """Reshape by global sizes; keeps the sharing-out if one new dimension holds the batch."""
    place = tensor._place
    shape = numbers(global_shape(world, tensor))
    said = numbers(goal)
    sizes = _filled(said, prod(shape))
    found = None if sizes is None else _placed(shape, place, sizes)
    if sizes is None or found is None:
        return GATHER
    written_out = said[found.dim] != -1 and not isinstance(goal[found.dim], BatchInt)
    if written_out and found.length != 1:
        world.impure("a batch size is written out in a view")
    if _mentions_batch(goal, found.dim):
        world.impure("another size depends on the batch size")
    sizes[found.dim] = found.local_length(world.rank)
    return viewed(world, tensor.as_subclass(Tensor).reshape(sizes), found, tensor)


def _mentions_batch(goal: list[int], dim: int) -> bool:
    return any(isinstance(size, BatchInt) for at, size in enumerate(goal) if at != dim)


def _filled(sizes: list[int], numel: int) -> list[int] | None:
    """Sizes with the free one computed; None if they do not fit, as torch will tell."""
    known = prod(size for size in sizes if size != -1)
    if sizes.count(-1) > 1 or known <= 0 or numel % known:
        return None
    filled = [numel // known if size == -1 else size for size in sizes]
    return filled if prod(filled) == numel else None


def _placed(shape: list[int], place: Placement, goal: list[int]) -> Placement | None:
    # Rows before the batch factor and after it, counted over the whole tensor.
    outer = place.outer * prod(shape[: place.dim])
    inner = place.inner * prod(shape[place.dim + 1 :])
    total = place.split.total
    found = []
    before = 1
    for dim, size in enumerate(goal):
        after = prod(goal[dim + 1 :])
        if outer % before == 0 and inner % after == 0:
            rest_outer, rest_inner = outer // before, inner // after
            if rest_outer * total * rest_inner == size:
                found.append(Placement(place.split, dim, rest_outer, rest_inner))
        before *= size
    # A batch of one may stand anywhere; best where nothing is merged with it.
    return min(found, key=lambda one: one.length, default=None)


@named("permute")
def _permute(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    dims = [normal_dim(dim, tensor.dim()) for dim in given_sizes(args, kwargs, "dims")]
    result = tensor.as_subclass(Tensor).permute(dims)
    return viewed(world, result, tensor._place.at(dims.index(tensor._place.dim)), tensor)


@named("transpose", "swapaxes", "swapdims")
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
            return viewed(world, tensor.as_subclass(Tensor).permute(dims), place, tensor)
    if tensor.is_complex():
        return GATHER
    return _swapped(world, tensor, tensor.dim() - 2, tensor.dim() - 1)


def _swapped(world: World, tensor: Shard, one: int, two: int) -> Any:
    dim = {one: two, two: one}.get(tensor._place.dim, tensor._place.dim)
    result = tensor.as_subclass(Tensor).transpose(one, two)
    return viewed(world, result, tensor._place.at(dim), tensor)


@named("movedim", "moveaxis")
def _movedim(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    local = tensor.as_subclass(Tensor)
    source = argument(args, kwargs, 1, "source")
    target = argument(args, kwargs, 2, "destination")
    # Where the dimension went is read off a tensor whose sizes are its own dimension numbers.
    numbered = torch.empty([dim + 1 for dim in range(local.dim())]).movedim(source, target)
    where = list(numbered.shape).index(tensor._place.dim + 1)
    return viewed(world, local.movedim(source, target), tensor._place.at(where), tensor)


@named("unsqueeze")
def _unsqueeze(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    dim = argument(args, kwargs, 1, "dim")
    dim = dim + tensor.dim() + 1 if dim < 0 else dim
    place = tensor._place.at(tensor._place.dim + (dim <= tensor._place.dim))
    return viewed(world, tensor.as_subclass(Tensor).unsqueeze(dim), place, tensor)


@named("squeeze")
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
    return viewed(world, result, moved, tensor)


@named("unsqueeze_", "squeeze_", "transpose_", "swapaxes_", "swapdims_", "t_")
def _change_shape(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, name = args[0], func.__name__
    rule = {"unsqueeze_": _unsqueeze, "squeeze_": _squeeze, "t_": _t}.get(name, _transpose)
    viewed = rule(world, getattr(Tensor, name[:-1]), args, kwargs)
    if viewed is GATHER:  # a batch of one was squeezed away: there is nothing left to share out
        raise RefusedError(
            f"{name}() would take away the dimension of the batch, which holds one sample",
            remedy=f"write x = x.{name[:-1]}(...), or name the dimensions to squeeze",
        )
    local = viewed.as_subclass(Tensor)
    tensor.as_strided_(local.shape, local.stride(), local.storage_offset())
    tensor._place = viewed._place
    return tensor


@named("expand", "broadcast_to")
def _expand(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    sizes = given_sizes(args, kwargs, "size")
    place = tensor._place
    at = place.dim + len(sizes) - tensor.dim()
    asked = number(sizes[at])
    if asked not in (-1, place.length) or _mentions_batch(sizes, at):
        return GATHER
    if asked != -1 and not isinstance(sizes[at], BatchInt):
        world.impure("a batch size is written out in expand")
    local = numbers(sizes)
    local[at] = -1
    return wrapped(world, tensor.as_subclass(Tensor).expand(local), place.at(at))
