"""Memory that a script sees through two tensors, one of them shared out.

    data ──cut──► Shard                   x = shard(data[i:j]); x.zero_()   changes data, too
    Shard ──gathered──► whole ──► row     row = x[0]; row.zero_()           changes x, too

In the sequential script both are views of one memory. Here the first is one only for the rows of
this worker, and the second is a copy: what was written through one is carried over to the other.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from reparto.runtime._collective import gathered
from reparto.runtime._layout import Placement, take

if TYPE_CHECKING:
    from reparto.runtime._world import World

#: Offset, shape and strides.
_Lies = tuple[int, tuple[int, ...], tuple[int, ...]]

_no_dispatch = torch._C.DisableTorchFunctionSubclass


class _Cut(NamedTuple):
    """Where in its storage a tensor lies that was shared out, and this worker's slice of it."""

    data: _Lies
    slice: _Lies
    place: Placement


def mark_cut(data: Tensor, slice: Tensor, place: Placement) -> None:
    """Slices of this replicated tensor are handed out."""
    # On the storage, which all views share; numbers only, as tensors would hold it forever.
    storage: Any = data.untyped_storage()
    if not hasattr(storage, "_reparto_cuts"):
        storage._reparto_cuts = {}
    storage._reparto_cuts[_lies(slice)] = _Cut(_lies(data), _lies(slice), place)


def _lies(tensor: Tensor) -> _Lies:
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def _at(tensor: Tensor, lies: _Lies) -> Tensor:
    offset, shape, stride = lies
    return tensor.as_strided(shape, stride, offset)


def data_behind(shard: Any) -> Tensor | None:
    """The replicated data that a Shard is this worker's slice of, if it is just that."""
    cuts = getattr(shard.untyped_storage(), "_reparto_cuts", None)
    found = cuts.get(_lies(shard)) if cuts else None
    if found is None or found.place != shard._place:
        return None
    return _at(shard.as_subclass(Tensor).detach(), found.data)


def wrote(world: World, shard: Any) -> None:
    """A Shard was written in place: let all workers write the same into what it was cut from."""
    cuts = getattr(shard.untyped_storage(), "_reparto_cuts", None)
    found = next((cut for cut in cuts.values() if _lies_in(shard, cut)), None) if cuts else None
    if found is None:
        return
    world.impure("writes into the batch that it was given")
    local = shard.as_subclass(Tensor).detach()
    whole = gathered(_at(local, found.slice), found.place, world.data)
    _at(local, found.data).data.copy_(whole)  # .data: nobody's version is counted up


def _lies_in(shard: Any, cut: _Cut) -> bool:
    offset, shape, stride = cut.slice
    end = offset + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    return bool(offset <= shard.storage_offset() <= end)


class Mirror:
    """The gathered copy behind views of a Shard, and when the two were last the same."""

    def __init__(self, shard: Any, whole: Tensor) -> None:
        self.whole = whole
        self.made_by = whole.grad_fn
        self.shard_version = shard._version
        self.whole_version = whole._version

    def is_current(self, shard: Any, with_graph: bool) -> bool:
        """Whether it can stand for the Shard instead of another gather."""
        return self.shard_version == shard._version and self.whole.requires_grad == with_graph


def remember(world: World, shard: Any, whole: Tensor) -> None:
    """Views of a gathered copy are handed to the script."""
    if shard._mirror is None or shard._mirror.whole is not whole:
        with _no_dispatch():
            shard._mirror = Mirror(shard, whole)
        world.mirrors.append(weakref.ref(shard))


def reflect(world: World) -> None:
    """Carry over what was written through views of gathered copies."""
    world.mirrors[:] = [reference for reference in world.mirrors if reference() is not None]
    with _no_dispatch():
        for reference in list(world.mirrors):
            shard = reference()
            if shard._mirror.whole._version != shard._mirror.whole_version:
                _carry_over(world, shard, shard._mirror)


def _carry_over(world: World, shard: Any, mirror: Mirror) -> None:
    world.impure("writes into rows of the batch")
    # Written outside of autograd, the graph of the copy is what it was, and that of the Shard too.
    in_graph = mirror.whole.grad_fn is not mirror.made_by
    with torch.set_grad_enabled(in_graph):
        shard.copy_(take(mirror.whole, shard._place, world.rank))
        wrote(world, shard)
    mirror.made_by = mirror.whole.grad_fn
    mirror.whole_version, mirror.shard_version = mirror.whole._version, shard._version
