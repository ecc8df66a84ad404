"""Regions: modules that treat every sample on its own run on plain tensors.

Looking up a rule for each operation costs a few microseconds. The first call of a module is
therefore *watched*: if nothing in it looked across the batch (no sum, no gather, no use of the
batch size as a number, no replicated tensor sliced along), later calls of the same kind run as
one region, on the plain local tensors, with no look-up inside. If something did, its children
are asked in turn. Batch normalisation is allowed inside: it finds the batch through the region.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from reparto.errors import DisagreementError
from reparto.runtime._collective import sum_all
from reparto.runtime._draws import random_state, same_state
from reparto.runtime._layout import Placement
from reparto.runtime._mirrors import reflect
from reparto.runtime._suitable import numbers_of, unsuitable
from reparto.runtime._tensors import NO_REGIONS, Shard, Tracked, plain, shard

if TYPE_CHECKING:
    from reparto.runtime._world import World


#: Of so many kinds of call of one module is remembered what they did.
MAX_KINDS = 64


@dataclass
class Watch:
    """What a watched call did.

    Attributes:
        impure: Why the module must not run as a region; empty if nothing was seen.
        dims: The dimensions whose size, that of the batch, it has asked for.
    """

    impure: str = ""
    dims: set[int] = field(default_factory=set)


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
    depth: int = 0
    is_off: bool = False

    def forget(self, changed: nn.Module | None = None) -> None:
        """Something changed that regions rely on, in one module or in all."""
        for module in list(self.known):
            if changed is None or any(child is changed for child in module.modules()):
                del self.known[module]


def call(world: World, module: nn.Module, original: Any, args: Any, kwargs: Any) -> Any:
    """Call a module whose arguments may hold Shards."""
    if world.mirrors:
        reflect(world)
    if world.strategy_adopts and not world.regions.depth and not world.gradients.quiet:
        world.gradients.hand_over(module)
    world.regions.depth += 1
    try:
        result = _called(world, module, original, args, kwargs)
    finally:
        world.regions.depth -= 1
    if module._backward_hooks or module._backward_pre_hooks:
        vars(module)["_reparto_places"] = _placements(args), _placements(_tupled(result))
    return result


def without_regions(world: World, function: Any) -> Any:
    """A function in which no module runs as a region, so that it does the same each time."""

    def run(*args: Any, **kwargs: Any) -> Any:
        was, world.regions.is_off = world.regions.is_off, True
        try:
            return function(*args, **kwargs)
        finally:
            world.regions.is_off = was

    return run


def _tupled(value: Any) -> Any:
    return value if isinstance(value, tuple) else (value,)


def on_global_gradients(world: World, module: nn.Module, hook: Any) -> Any:
    """A module's backward hook that sees gradients of the global batch."""

    def wrapper(module: nn.Module, *grads: Any) -> Any:
        places = vars(module).get("_reparto_places")
        if places is None:
            return hook(module, *grads)
        result = hook(
            module,
            *(
                tuple(_marked(world, one, place) for one, place in zip(part, known, strict=False))
                for part, known in zip(grads, places[-len(grads) :], strict=True)
            ),
        )
        return None if result is None else tuple(_unmarked(world, one) for one in _tupled(result))

    return wrapper


def _marked(world: World, grad: Any, place: Any) -> Any:
    if not isinstance(grad, Tensor):
        return grad
    return shard(grad, place) if isinstance(place, Placement) else sum_all(grad, world.data)


def _unmarked(world: World, grad: Any) -> Any:
    if isinstance(grad, Shard) or not isinstance(grad, Tensor):
        return _opened(grad)
    return grad / world.size


def _called(world: World, module: nn.Module, original: Any, args: Any, kwargs: Any) -> Any:
    regions = world.regions
    shards = list(_shards((args, kwargs)))
    if not shards or regions.is_off:
        return original(module, *args, **kwargs)
    first = shards[0]
    if any(one._place.split != first._place.split for one in shards[1:]):
        return original(module, *args, **kwargs)  # several batches: a region has one
    if (trusted := _trusted(world, module, original, args, kwargs)) is not None:
        return trusted
    key = _key(module, first._place, args, kwargs)
    known = regions.known.get(module)
    if known is None:
        known = regions.known[module] = {}
    region = known.get(key)
    if region is None and len(known) >= MAX_KINDS:
        known.clear()  # called with another number each time
    if region is None or not world.has_regions:
        return _watched(world, module, original, args, kwargs, known, key)
    if not region.pure:
        if regions.watches:
            regions.watches[-1].impure = regions.watches[-1].impure or region.reason
        return original(module, *args, **kwargs)
    if min(first._place.split.sizes) < 2:
        # A single row has other strides than many: what torch lets view in one, it may not in
        # the other. The rules know.
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
    split = next(_shards((args, kwargs)))._place.split
    world.regions.watches.append(watch)
    before = random_state(), numbers_of(module)
    try:
        result = original(module, *args, **kwargs)
    finally:
        world.regions.watches.pop()
    if not same_state(before[0], random_state()):
        # A draw that is not a sample's own (a layer skipped at random) must be everyone's.
        watch.impure = watch.impure or "draws numbers that all workers share"
    if before[1] != numbers_of(module):
        watch.impure = watch.impure or "counts its calls, and may go by it"
    reason = watch.impure or unsuitable(module, result, split, frozenset(watch.dims))
    if world.regions.watches:
        outer = world.regions.watches[-1]
        outer.impure = outer.impure or reason
        outer.dims |= watch.dims
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
        with world.draws.inside():
            result = original(module, *_opened(args), **_opened(kwargs))
    finally:
        regions.active = None
    closed = _closed(world, result, region.outputs, place)
    if closed is _CHANGED:
        raise _changed(module, "it returned another structure than before")
    return closed


def makes_batches(world: World) -> None:
    """A batch is about to be shared out; in a region there is one already."""
    why = "shares out a batch of its own"
    world.impure(why)
    if world.regions.active is not None:
        raise _changed(None, f"it {why}, which it did not do before")


def _changed(module: nn.Module | None, how: str) -> DisagreementError:
    name = "a module" if module is None else type(module).__name__
    return DisagreementError(
        f"{name} changed its ways while the script went on: {how}",
        remedy=NO_REGIONS,
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
        rows = outputs.outer * place.split.rows(world.rank)
        size = result.shape[outputs.dim]
        if size % rows:
            return _CHANGED
        return shard(result, Placement(place.split, outputs.dim, outputs.outer, size // rows))
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


def _trusted(world: World, module: Any, original: Any, args: Any, kwargs: Any) -> Any:
    """Run torch's encoders in evaluation as regions at once, without a look inside.

    They then take a way of their own that fills padded places with zeros, and only for plain
    tensors: watched, they would give other numbers there.
    """
    kinds = (nn.TransformerEncoder, nn.TransformerEncoderLayer)
    if type(module) not in kinds or module.training or not world.has_regions:
        return None
    layer = module.layers[0] if type(module) is nn.TransformerEncoder else module
    dim = 0 if layer.self_attn.batch_first else 1
    shards = list(_shards((args[1:], kwargs)))
    plain_batch = replace(args[0]._place, dim=0) if args and isinstance(args[0], Shard) else None
    if (
        plain_batch is None
        or args[0]._place.dim != dim
        or any(one._place != plain_batch for one in shards)
    ):
        return None
    masks = [*args[2:], *[value for name, value in kwargs.items() if "padding" in name]]
    if any(isinstance(mask, Tensor) and not isinstance(mask, Shard) for mask in masks):
        return None  # a replicated mask has to be cut first
    region = Region(True, args[0]._place)
    return _as_region(world, module, original, args, kwargs, args[0], region)


def _shards(value: Any) -> Iterator[Shard]:
    if isinstance(value, Shard):
        yield value
    elif type(value) in (tuple, list):
        for part in value:
            yield from _shards(part)
    elif type(value) is dict:
        for part in value.values():
            yield from _shards(part)


def _key(module: nn.Module, place: Placement, args: Any, kwargs: Any) -> Any:
    return (
        module.training,
        torch.is_grad_enabled(),
        tuple(_kind(value, place) for value in args),
        tuple((name, _kind(value, place)) for name, value in kwargs.items()) if kwargs else None,
    )


def _kind(value: Any, place: Placement) -> Any:
    if isinstance(value, Shard):
        its = value._place
        return (its.dim, its.outer, its.inner, Tensor.dim(plain(value)))
    if isinstance(value, Tensor):
        # Whether it is stretched to the batch or cut with it decides what a module looks at.
        sizes = tuple(0 if size == 1 else 1 + (size == place.length) for size in value.shape)
        return (type(value), sizes, value.requires_grad)
    if type(value) in (tuple, list):
        return tuple(_kind(part, place) for part in value)
    if type(value) is dict:
        return tuple((name, _kind(part, place)) for name, part in value.items())
    if type(value) in (int, float, str, bool, type(None)):
        return value
    return (type(value), id(value))
