"""Memory that a script sees through two tensors, one of them shared out.

    data ──cut──► Shard                   x = shard(data[i:j]); x.zero_()   changes data, too
    Shard ──gathered──► whole ──► row     row = x[0]; row.zero_()           changes x, too

In the sequential script both are views of one memory. Here the first is one only for the rows of
this worker, and the second is a copy: what was written through one is carried over to the other.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._collective import gathered
from reparto.runtime._layout import take

if TYPE_CHECKING:
    from reparto.runtime._world import World

_no_dispatch = torch._C.DisableTorchFunctionSubclass


def wrote(world: World, shard: Any) -> None:
    """A Shard was written in place: let all workers write the same into what it was cut from."""
    cut = shard if shard._data is not None else shard._cut
    if cut is None:
        return
    world.impure("writes into the batch that it was given")
    whole = gathered(cut.as_subclass(Tensor), cut._place, world.data)
    cut._data.data.copy_(whole)  # .data: nobody's version is counted up


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
