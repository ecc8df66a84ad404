"""Indexing: ``x[...]`` where the batch is left alone, or is itself the index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from reparto.runtime._layout import Placement, number
from reparto.runtime._mirrors import wrote
from reparto.runtime._rules._base import aligned_slice, fits, named, viewed, wrapped
from reparto.runtime._tensors import GATHER, Shard, Tracked

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _listed(index: Any, ndim: int) -> list[Any] | None:
    """The index as one entry a dimension, with the ellipsis and the missing rest filled in.

    Entries are None, integers, slices, or integer tensors; None for any other index.
    """
    items = [_simple(one) for one in (index if isinstance(index, tuple) else (index,))]
    if any(one is _OTHER for one in items):
        return None
    used = sum(1 for one in items if one is not None and one is not Ellipsis)
    ellipses = [at for at, one in enumerate(items) if one is Ellipsis]
    if used > ndim or len(ellipses) > 1:
        return None
    at = ellipses[0] if ellipses else len(items)
    items[at : at + len(ellipses)] = [slice(None)] * (ndim - used)
    return items


_OTHER = object()


def _simple(item: Any) -> Any:
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (list, range, np.ndarray)):
        if isinstance(item, list) and any(isinstance(one, (Tracked, slice)) for one in item):
            return _OTHER
        item = torch.as_tensor(np.asarray(item))
    if isinstance(item, Tensor):
        if item.is_floating_point() or item.dtype in (torch.bool, torch.uint8):
            return _OTHER
        is_number = item.dim() == 0 and not isinstance(item, Tracked)
        return int(item) if is_number else item
    if isinstance(item, np.integer):
        return int(item)
    return number(item) if isinstance(item, int) and not isinstance(item, bool) else _OTHER


def _is_all(item: Any) -> bool:
    return isinstance(item, slice) and item in (slice(None), slice(0, None), slice(None, None, 1))


@named("__getitem__")
def _getitem(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, index = args
    items = _listed(index, tensor.dim())
    if items is None:
        return GATHER
    if isinstance(tensor, Shard):
        return _from_shard(world, tensor, items)
    return _from_plain(world, tensor, items)


def _from_shard(world: World, tensor: Shard, items: list[Any]) -> Any:
    batch = _entry_of_dim(items, tensor._place.dim)
    advanced = [at for at, one in enumerate(items) if isinstance(one, Tensor)]
    if _is_all(items[batch]):
        return _batch_kept(world, tensor, items, batch, advanced)
    if _picks_rows(items, batch, advanced, tensor._place):
        return _picked(world, tensor, items)
    return GATHER


def _entry_of_dim(items: list[Any], dim: int) -> int:
    entries = [at for at, one in enumerate(items) if one is not None]
    return entries[dim]


def _batch_kept(
    world: World, tensor: Shard, items: list[Any], batch: int, advanced: list[int]
) -> Any:
    if any(isinstance(items[at], Shard) for at in advanced) or len(advanced) > 1:
        return GATHER
    if advanced and any(isinstance(one, int) for one in items):
        return GATHER  # integers join the advanced index, which may move to the front
    before = 0
    for item in items[:batch]:
        if item is None or isinstance(item, slice):
            before += 1
        elif isinstance(item, Tensor):
            before += item.dim()
    result = tensor.as_subclass(Tensor)[tuple(items)]
    return viewed(world, result, tensor._place.at(before), tensor)


def _picks_rows(items: list[Any], batch: int, advanced: list[int], place: Placement) -> bool:
    """Whether it is ``x[arange(n), y]``: every row once, in order."""
    if batch != 0 or place.dim != 0 or advanced != [0, 1] or any(one is None for one in items):
        return False
    rows = items[0]
    if isinstance(rows, Shard) or rows.dim() != 1 or rows.numel() != place.length:
        return False
    return torch.equal(rows, torch.arange(place.length, device=rows.device))


def _picked(world: World, tensor: Shard, items: list[Any]) -> Any:
    place, other = tensor._place, items[1]
    if other.dim() != 1 or (isinstance(other, Shard) and other._place != place):
        return GATHER
    world.impure("rows are picked by number")
    local_other = (
        other.as_subclass(Tensor)
        if isinstance(other, Shard)
        else aligned_slice(world, other, 1, place)
    )
    local = tensor.as_subclass(Tensor)
    rows = torch.arange(local.shape[0], device=local.device)
    return wrapped(world, local[(rows, local_other, *items[2:])], place)


def _from_plain(world: World, tensor: Tensor, items: list[Any]) -> Any:
    """A table that is looked up by the batch."""
    advanced = [at for at, one in enumerate(items) if isinstance(one, Tensor)]
    shards = [items[at] for at in advanced if isinstance(items[at], Shard)]
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
    if isinstance(index, Shard):
        return _set_where(world, func, tensor, index, value)
    items = _listed(index, tensor.dim())
    if items is None or any(one is None or isinstance(one, Tensor) for one in items):
        return GATHER
    place = tensor._place
    if not _is_all(items[place.dim]):
        return GATHER
    if isinstance(value, Tensor):
        value = _value_slice(world, tensor, items, value)
        if value is None:
            return GATHER
    func(tensor, tuple(items), value)
    wrote(world, tensor)
    return None


def _set_where(world: World, func: Any, tensor: Shard, mask: Shard, value: Any) -> Any:
    same = mask._place == tensor._place and mask.dtype is torch.bool
    if not same or (isinstance(value, Tensor) and value.dim()):
        return GATHER
    func(tensor, mask.as_subclass(Tensor), value)
    wrote(world, tensor)
    return None


def _value_slice(world: World, tensor: Shard, items: list[Any], value: Tensor) -> Tensor | None:
    """This worker's rows of what is to be written, as it is broadcast to ``tensor[items]``."""
    place = tensor._place
    after = items[place.dim :]
    from_right = len(after) - sum(isinstance(one, int) for one in after)
    if not isinstance(value, Shard):
        follows = fits(value, from_right, place)
        return aligned_slice(world, value, from_right, place) if follows else None
    if value.dim() - value._place.dim != from_right or not value._place.same_rows(place):
        return None
    return value.as_subclass(Tensor)


@named("bucketize")
def _bucketize(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else None
    others = [*args[1:], *kwargs.values()]
    if not isinstance(tensor, Shard) or any(isinstance(one, Shard) for one in others):
        return GATHER
    return wrapped(world, func(tensor.as_subclass(Tensor), *args[1:], **kwargs), tensor._place)
