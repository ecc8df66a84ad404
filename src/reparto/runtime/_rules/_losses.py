"""Losses: each worker's term, with the divisor of the global batch."""

from __future__ import annotations

import inspect
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reparto.runtime._layout import Placement, effective
from reparto.runtime._rules._base import aligned, exactly, named, wrapped
from reparto.runtime._tensors import GATHER, Cell, Divisor, Shard, sliced, summand

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@lru_cache(maxsize=64)
def _signature(func: Any) -> tuple[inspect.Signature, tuple[str, ...], dict[str, Any]]:
    """A signature, the names in it and the defaults."""
    found = inspect.signature(func)
    defaults = {
        name: parameter.default
        for name, parameter in found.parameters.items()
        if parameter.default is not inspect.Parameter.empty
    }
    return found, tuple(found.parameters), defaults


def _bound(func: Any, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    signature, names, defaults = _signature(func)
    call = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
    # Binding is slow, so it is only asked where these do not fit, and then tells why.
    twice = bool(kwargs) and any(name in kwargs for name in names[: len(args)])
    if twice or len(args) > len(names) or len(call) != len(names):
        signature.bind(*args, **kwargs)
    return call


def _weighted(world: World, func: Any, call: dict[str, Any], place: Placement) -> Any:
    """Run a loss on this worker's rows and weigh a mean by its share of the batch."""
    split, rank = place.split, world.rank
    if call["reduction"] == "none":
        return wrapped(world, func(**call), place)
    world.impure("a loss over the batch")
    if split.is_ghost(rank):
        # No rows of its own: a zero that is still connected, so the backward pass runs alike.
        return summand(func(**{**call, "reduction": "sum"}) * 0.0)
    result = func(**call)
    if call["reduction"] == "sum" or world.options.sabotage == "sum-for-mean":
        return summand(result)
    return summand(result * (split.sizes[rank] / split.total))


def _is_old(call: dict[str, Any]) -> bool:
    """Whether the reduction is said in the way of torch 0.4."""
    return call.get("size_average") is not None or call.get("reduce") is not None


def _elementwise(*names: str) -> Any:
    """A rule for losses of broadcast operands; ``names`` are those that follow the batch."""

    def rule(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
        call = _bound(func, args, kwargs)
        if _is_old(call):
            return GATHER
        present = [name for name in names if isinstance(call.get(name), Tensor)]
        if _divides_by_weight(func, call) or _spreads_variance(func, call):
            return GATHER
        together = aligned(world, [call[name] for name in present])
        if together is None:
            return GATHER
        slices, _, place = together
        # batchmean divides by the first dimension, which then has to be the batch.
        if call["reduction"] == "batchmean" and place.dim != 0:
            return GATHER
        return _weighted(world, func, {**call, **dict(zip(present, slices, strict=True))}, place)

    return rule


def _divides_by_weight(func: Any, call: dict[str, Any]) -> bool:
    plain = func in (F.mse_loss, F.huber_loss)
    return plain and call["weight"] is not None and call["reduction"] == "mean"


def _spreads_variance(func: Any, call: dict[str, Any]) -> bool:
    """Whether a variance a sample is meant for all of its features, which no broadcast does."""
    variance = call.get("var")
    is_whole = isinstance(variance, Tensor) and variance.dim() == call["input"].dim()
    return func is F.gaussian_nll_loss and not is_whole


exactly(F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy)(
    _elementwise("input", "target", "weight")
)
named("l1_loss")(_elementwise("input", "target"))  # by name: it is wrapped, see _patches
exactly(F.binary_cross_entropy_with_logits)(
    _elementwise("input", "target", "weight", "pos_weight")
)
exactly(F.kl_div, F.poisson_nll_loss, F.soft_margin_loss, F.hinge_embedding_loss)(
    _elementwise("input", "target")
)
exactly(F.gaussian_nll_loss)(_elementwise("input", "target", "var"))


def _by_sample(*names: str) -> Any:
    """A rule for losses of one value a sample; the batch is the first dimension of all."""

    def rule(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
        call = _bound(func, args, kwargs)
        slices = _row_slices(world, call, names)
        if slices is None or _is_old(call):
            return GATHER
        return _weighted(world, func, {**call, **slices[0]}, slices[1])

    return rule


def _row_slices(
    world: World, call: dict[str, Any], names: tuple[str, ...]
) -> tuple[dict[str, Any], Placement] | None:
    """This worker's rows of some arguments, if all of them have the batch first."""
    place = next(call[name]._place for name in call if isinstance(call[name], Shard))
    slices: dict[str, Any] = {}
    for name, value in call.items():
        if name not in names:
            if isinstance(value, Shard):
                return None
        elif isinstance(value, Shard):
            if value._place != place or place.dim != 0:
                return None
            slices[name] = value.as_subclass(Tensor)
        elif value.dim() and value.shape[0] == place.length:
            slices[name] = sliced(world, value, place.at(0))
        else:
            return None
    return slices, place


exactly(F.triplet_margin_loss)(_by_sample("anchor", "positive", "negative"))
exactly(F.cosine_embedding_loss)(_by_sample("input1", "input2", "target"))
exactly(F.margin_ranking_loss)(_by_sample("input1", "input2", "target"))
exactly(F.multi_margin_loss, F.multilabel_margin_loss)(_by_sample("input", "target"))
exactly(F.multilabel_soft_margin_loss)(_by_sample("input", "target"))


@exactly(F.cross_entropy, F.nll_loss)
def _cross_entropy(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    call = _bound(func, args, kwargs)
    if _is_old(call) or call["input"].dim() < 2:
        return GATHER
    slices = _row_slices(world, call, ("input", "target"))
    if slices is None:
        return GATHER
    call, place = {**call, **slices[0]}, slices[1]
    of_classes = not call["target"].is_floating_point()
    if of_classes and call["reduction"] == "mean" and call["target"].numel():
        return _class_mean(world, func, call, place)
    return _weighted(world, func, call, place)  # class probabilities: divided by samples


def _class_mean(world: World, func: Any, call: dict[str, Any], place: Placement) -> Any:
    """A mean over targets that are not ignored, weighted by class: the divisor is global."""
    world.impure("a loss over the batch")
    nominal = float(place.length * prod(call["target"].shape[1:]))
    for name in ("input", "target"):
        call[name] = effective(call[name], place, world.rank)
    target, weight = call["target"], call["weight"]
    total = func(**{**call, "reduction": "sum"})
    if world.options.sabotage == "sum-for-mean":
        return summand(total / max(target.numel(), 1))
    kept = target != call["ignore_index"]
    if weight is None:
        count = kept.count_nonzero()
    else:
        count = weight.detach()[target.masked_fill(~kept, 0)].mul(kept).sum()
    return summand(total / nominal, Cell(total.detach(), Divisor(count, nominal)), 1 / nominal)


@exactly(F.ctc_loss)
def _ctc(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    call = _bound(func, args, kwargs)
    probabilities, targets = call["log_probs"], call["targets"]
    if not isinstance(probabilities, Shard) or probabilities.dim() != 3 or targets.dim() != 2:
        return GATHER
    place = probabilities._place
    if place.dim != 1:
        return GATHER
    rows = place.at(0)
    call["log_probs"] = probabilities.as_subclass(Tensor)
    for name in ("targets", "input_lengths", "target_lengths"):
        value = call[name]
        if isinstance(value, Shard):
            if value._place != rows:
                return GATHER
            call[name] = value.as_subclass(Tensor)
        else:
            value = value if isinstance(value, Tensor) else torch.tensor(value)
            call[name] = sliced(world, value, rows)
    split = place.split
    if call["reduction"] == "none":
        return wrapped(world, func(**call), rows)
    world.impure("a loss over the batch")
    result = func(**call)
    if split.is_ghost(world.rank):
        return summand(torch.nan_to_num(result, 0.0, 0.0, 0.0) * 0.0)
    if call["reduction"] == "mean":
        result = result * (split.sizes[world.rank] / split.total)
    return summand(result)
