"""Indexing: ``x[...]`` where the batch is left alone, or is itself the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._layout import Placement, take
from reparto.runtime._rules._base import named, settled, wrapped
from reparto.runtime._tensors import GATHER, Shard, sliced

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _listed(index: Any, ndim: int) -> list[Any] | None:
    """The index as one entry a dimension, with the ellipsis and the missing rest filled in."""
    items = list(index) if isinstance(index, tuple) else [index]
    if any(isinstance(one, Tensor) and one.dtype is torch.bool for one in items):
        return None
    used = sum(1 for one in items if one is not None and one is not Ellipsis)
    if used > ndim or items.count(None) + used + 1 < len(items):
        return None
    for position, one in enumerate(items):
        if one is Ellipsis:
            items[position : position + 1] = [slice(None)] * (ndim - used)
            return items
    return items + [slice(None)] * (ndim - used)


def _is_all(item: Any) -> bool:
    return isinstance(item, slice) and item == slice(None)


@named("__getitem__")
def _getitem(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, index = args
    if isinstance(tensor, Shard):
        return _from_shard(world, tensor, index)
    return _from_plain(world, settled(world, tensor), index)


def _from_shard(world: World, tensor: Shard, index: Any) -> Any:
    items = _safe_list(index, tensor.dim())
    if items is None:
        return GATHER
    place, dim, batch = tensor._place, -1, None
    for position, item in enumerate(items):
        dim += item is not None
        if dim == place.dim:
            batch = position
            break
    assert batch is not None
    advanced = [i for i, one in enumerate(items) if _is_advanced(one)]
    if _is_all(items[batch]):
        return _batch_kept(world, tensor, items, batch, advanced)
    if _picks_rows(world, items, batch, advanced, place):
        return _picked(world, tensor, items, batch, advanced)
    return GATHER


def _safe_list(index: Any, ndim: int) -> list[Any] | None:
    try:
        return _listed(index, ndim)
    except (TypeError, ValueError):
        return None


def _is_advanced(item: Any) -> bool:
    return isinstance(item, (Tensor, list, range)) or type(item).__module__ == "numpy"


def _batch_kept(
    world: World, tensor: Shard, items: list[Any], batch: int, advanced: list[int]
) -> Any:
    place = tensor._place
    if any(isinstance(items[i], Shard) for i in advanced) or len(advanced) > 1:
        return GATHER
    before = 0
    for item in items[:batch]:
        if item is None or isinstance(item, slice):
            before += 1
        elif _is_advanced(item):
            before += item.dim() if isinstance(item, Tensor) else 1
    result = tensor.as_subclass(Tensor)[tuple(items)]
    if advanced and any(isinstance(one, int) for one in items):
        return GATHER  # integers join the advanced index, which may move to the front
    return wrapped(world, result, place.at(before), tensor._site)


def _picks_rows(
    world: World, items: list[Any], batch: int, advanced: list[int], place: Placement
) -> bool:
    """Whether it is ``x[arange(n), y]``: every row once, in order."""
    if batch != 0 or place.dim != 0 or advanced != [0, 1] or any(i is None for i in items):
        return False
    rows = items[0]
    if isinstance(rows, Shard):
        return False
    rows = rows if isinstance(rows, Tensor) else torch.tensor(list(rows))
    if rows.dim() != 1 or rows.numel() != place.length:
        return False
    return torch.equal(rows, torch.arange(place.length, device=rows.device))


def _picked(
    world: World, tensor: Shard, items: list[Any], batch: int, advanced: list[int]
) -> Any:
    place = tensor._place
    other = items[1]
    world.impure("rows are picked by number")
    if isinstance(other, Shard):
        if other._place != place or other.dim() != 1:
            return GATHER
        local_other = other.as_subclass(Tensor)
    else:
        other = other if isinstance(other, Tensor) else torch.tensor(list(other))
        if other.dim() != 1:
            return GATHER
        local_other = take(other, place, world.rank)
    local = tensor.as_subclass(Tensor)
    rows = torch.arange(local.shape[0], device=local.device)
    return wrapped(world, local[(rows, local_other, *items[2:])], place)


def _from_plain(world: World, tensor: Tensor, index: Any) -> Any:
    items = _safe_list(index, tensor.dim())
    if items is None:
        return GATHER
    advanced = [i for i, one in enumerate(items) if _is_advanced(one)]
    shards = [items[i] for i in advanced if isinstance(items[i], Shard)]
    if any(one._place != shards[0]._place or one.dim() != shards[0].dim() for one in shards):
        return GATHER
    adjacent = advanced == list(range(advanced[0], advanced[0] + len(advanced)))
    if not adjacent or any(isinstance(one, int) for one in items) or len(shards) < len(advanced):
        return GATHER
    local = [one.as_subclass(Tensor) if isinstance(one, Shard) else one for one in items]
    place: Placement = shards[0]._place
    return wrapped(world, tensor[tuple(local)], place.at(place.dim + advanced[0]))


@named("__setitem__")
def _setitem(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, index, value = args
    if not isinstance(tensor, Shard):
        return GATHER
    place = tensor._place
    if isinstance(index, Shard):
        same = index._place == place and index.dtype is torch.bool and index.dim() == tensor.dim()
        if not same or isinstance(value, Tensor):
            return GATHER
        func(tensor, index.as_subclass(Tensor), value)
        return None
    items = _safe_list(index, tensor.dim())
    if items is None or None in [one for one in items if not isinstance(one, Tensor)]:
        return GATHER
    if any(_is_advanced(one) for one in items) or not _is_all(items[place.dim]):
        return GATHER
    if isinstance(value, Tensor) and value.dim():
        from_right = tensor[tuple(items)].dim() - (
            place.dim - sum(isinstance(one, int) for one in items[: place.dim])
        )
        if isinstance(value, Shard):
            if value.dim() - value._place.dim != from_right or not value._place.same_rows(place):
                return GATHER
            value = value.as_subclass(Tensor)
        else:
            value = settled(world, value)
            dim = value.dim() - from_right
            if dim >= 0 and value.shape[dim] != 1:
                value = sliced(world, value, place.at(dim))
    func(tensor, tuple(items), value)
    return None


@named("masked_select", "nonzero", "unique", "bincount", "histc")
def _whole_only(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return GATHER


@named("take")
def _take(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return GATHER


@named("bucketize", "searchsorted")
def _bucketize(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    if func.__name__ != "bucketize" or not isinstance(tensor, Shard):
        return GATHER
    return wrapped(world, func(tensor.as_subclass(Tensor), *args[1:], **kwargs), tensor._place)
