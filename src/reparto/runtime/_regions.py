"""Regions: modules that treat every sample on its own run on plain tensors.

Looking up a rule for each operation costs a few microseconds. The first call of a module is
therefore *watched*: if nothing in it looked across the batch (no sum, no gather, no use of the
batch size as a number, no replicated tensor sliced along), later calls of the same kind run as
one region, on the plain local tensors, with no look-up inside. If something did, its children
are asked in turn. Batch normalisation is allowed inside: it finds the batch through the region.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from reparto.errors import DisagreementError
from reparto.runtime._layout import Placement
from reparto.runtime._tensors import Shard, Tracked, plain, shard

if TYPE_CHECKING:
    from reparto.runtime._world import World


@dataclass
class Watch:
    """What a watched call did."""

    impure: str = ""


@dataclass
class Region:
    """What is known of one kind of call of one module."""

    pure: bool
    outputs: Any = None
    reason: str = ""
    num_calls: int = 0

    def is_due(self) -> bool:
        """Whether to watch again: modules may change their ways while a script goes on."""
        self.num_calls += 1
        count = self.num_calls
        return count % 4096 == 0 or (count & (count - 1) == 0 and count > 2)


@dataclass
class Regions:
    """All that is known of the modules of one worker."""

    known: weakref.WeakKeyDictionary[nn.Module, dict[Any, Region]] = field(
        default_factory=weakref.WeakKeyDictionary
    )
    watches: list[Watch] = field(default_factory=list)
    active: Placement | None = None

    def forget(self) -> None:
        """Something changed that regions rely on."""
        self.known.clear()


def call(world: World, module: nn.Module, original: Any, args: Any, kwargs: Any) -> Any:
    """Call a module whose arguments may hold Shards."""
    regions = world.regions
    if regions.active is not None:
        return original(module, *args, **kwargs)
    first = _first_shard(args, kwargs)
    if first is None:
        return original(module, *args, **kwargs)
    key = _key(module, args, kwargs)
    known = regions.known.get(module)
    if known is None:
        known = regions.known[module] = {}
    region = known.get(key)
    if region is None or not world.has_regions:
        return _watched(world, module, original, args, kwargs, known, key)
    if not region.pure:
        if regions.watches:
            regions.watches[-1].impure = regions.watches[-1].impure or region.reason
        return original(module, *args, **kwargs)
    if region.is_due():
        result = _watched(world, module, original, args, kwargs, known, key)
        known[key].num_calls = region.num_calls
        if not known[key].pure:
            raise _changed(module, f"it {known[key].reason}, which it did not do before")
        return result
    return _as_region(world, module, original, args, kwargs, first, region)


def _watched(
    world: World, module: nn.Module, original: Any, args: Any, kwargs: Any, known: Any, key: Any
) -> Any:
    watch = Watch()
    world.regions.watches.append(watch)
    drawn = torch.default_generator.get_state()
    try:
        result = original(module, *args, **kwargs)
    finally:
        world.regions.watches.pop()
    if not torch.equal(drawn, torch.default_generator.get_state()):
        # A draw that is not a sample's own (a layer skipped at random) must be everyone's.
        watch.impure = watch.impure or "draws numbers that all workers share"
    reason = watch.impure or _unsuitable(module, result)
    if world.regions.watches and reason:
        outer = world.regions.watches[-1]
        outer.impure = outer.impure or reason
    known[key] = Region(not reason, _placements(result), reason)
    return result


def _as_region(
    world: World,
    module: nn.Module,
    original: Any,
    args: Any,
    kwargs: Any,
    first: Shard,
    region: Region,
) -> Any:
    place = first._place
    regions = world.regions
    regions.active = place
    try:
        with world.own_draws(True):
            result = original(module, *_opened(args), **_opened(kwargs))
    finally:
        regions.active = None
    closed = _closed(world, result, region.outputs, place)
    if closed is _CHANGED:
        raise _changed(module, "it returned another structure than before")
    return closed


def _changed(module: nn.Module, how: str) -> DisagreementError:
    return DisagreementError(
        f"{type(module).__name__} changed its ways while the script went on: {how}",
        remedy="set REPARTO_REGIONS=0 to have every operation looked at, at some cost in speed",
    )


_CHANGED = object()


def _opened(value: Any) -> Any:
    if isinstance(value, Tracked):
        return plain(value)
    if type(value) in (tuple, list):
        return type(value)(_opened(part) for part in value)
    if type(value) is dict:
        return {key: _opened(part) for key, part in value.items()}
    return value


def _placements(result: Any) -> Any:
    if isinstance(result, Shard):
        return result._place
    if type(result) in (tuple, list):
        return [_placements(part) for part in result]
    if type(result) is dict:
        return {key: _placements(part) for key, part in result.items()}
    return None


def _closed(world: World, result: Any, outputs: Any, place: Placement) -> Any:
    if isinstance(outputs, Placement):
        if not isinstance(result, Tensor) or result.dim() <= outputs.dim:
            return _CHANGED
        rows = place.split.rows(world.rank)
        size = result.shape[outputs.dim]
        if size % rows:
            return _CHANGED
        return shard(result, Placement(place.split, outputs.dim, 1, size // rows))
    if isinstance(outputs, list):
        if type(result) not in (tuple, list) or len(result) != len(outputs):
            return _CHANGED
        parts = [_closed(world, *pair, place) for pair in zip(result, outputs, strict=True)]
        return _CHANGED if any(part is _CHANGED for part in parts) else type(result)(parts)
    if isinstance(outputs, dict):
        if type(result) is not dict or result.keys() != outputs.keys():
            return _CHANGED
        made = {name: _closed(world, result[name], outputs[name], place) for name in result}
        return _CHANGED if any(part is _CHANGED for part in made.values()) else made
    return result


def _first_shard(args: Any, kwargs: Any) -> Shard | None:
    for value in (*args, *kwargs.values()):
        if isinstance(value, Shard):
            return value
        if type(value) in (tuple, list) and (found := _first_shard(value, {})) is not None:
            return found
        if type(value) is dict and (found := _first_shard((), value)) is not None:
            return found
    return None


def _key(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return (
        module.training,
        torch.is_grad_enabled(),
        tuple(_kind(value) for value in args),
        tuple((name, _kind(value)) for name, value in kwargs.items()) if kwargs else None,
    )


def _kind(value: Any) -> Any:
    if isinstance(value, Shard):
        place = value._place
        return (place.dim, place.outer, place.inner, Tensor.dim(plain(value)))
    if isinstance(value, Tensor):
        return ("plain", value.dim(), value.requires_grad)
    if type(value) in (tuple, list):
        return tuple(_kind(part) for part in value)
    if type(value) is dict:
        return tuple((name, _kind(part)) for name, part in value.items())
    if isinstance(value, (int, float, str, bool, type(None))):
        return value
    return id(value)


def _unsuitable(module: nn.Module, result: Any) -> str:
    """Why the results of a watched call keep it from being a region, or nothing."""
    for child in module.modules():
        if child._forward_hooks:
            return "a forward hook may look at local tensors"
        if isinstance(child, torch.jit.ScriptModule):
            return "scripted modules cannot be watched"
        for name, value in vars(child).items():
            if name != "_modules" and _holds_tracked(value):
                return f"keeps a tensor of the batch in .{name}"
    return "" if _is_simple(result) else "returns an object of its own kind"


def _holds_tracked(value: Any) -> bool:
    if isinstance(value, Tracked):
        return True
    if isinstance(value, dict):
        return any(_holds_tracked(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return any(_holds_tracked(part) for part in value)
    return False


def _is_simple(result: Any) -> bool:
    if isinstance(result, Shard):
        return result._place.outer == 1
    if result is None or isinstance(result, (int, float, str, bool)):
        return True
    if type(result) in (tuple, list):
        return all(_is_simple(part) for part in result)
    if type(result) is dict:
        return all(_is_simple(part) for part in result.values())
    return type(result) in (Tensor, nn.Parameter)
