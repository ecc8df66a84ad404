"""Losses: each worker's term, with the divisor of the global batch."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reparto.runtime._layout import Placement, effective
from reparto.runtime._rules._base import aligned, exactly, settled, wrapped
from reparto.runtime._tensors import GATHER, Cell, Divisor, Shard, sliced, summand

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@lru_cache(maxsize=64)
def _signature(func: Any) -> inspect.Signature:
    return inspect.signature(func)


def _bound(func: Any, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    arguments = _signature(func).bind(*args, **kwargs)
    arguments.apply_defaults()
    return dict(arguments.arguments)


def _weighted(world: World, func: Any, call: dict[str, Any], place: Placement) -> Any:
    """Run a loss on this worker's rows and weigh a mean by its share of the batch."""
    split, rank = place.split, world.rank
    if call["reduction"] == "none":
        return wrapped(world, func(**call), place)
    world.impure("a loss over the batch")
    if split.is_ghost(rank):
        # No rows of its own: a zero that is still connected, so the backward pass runs alike.
        call = {name: _emptied(value, place) for name, value in call.items()}
        return summand(func(**{**call, "reduction": "sum"}))
    result = func(**call)
    if call["reduction"] == "sum" or world.options.sabotage == "sum-for-mean":
        return summand(result)
    return summand(result * (split.sizes[rank] / split.total))


def _emptied(value: Any, place: Placement) -> Any:
    fits = isinstance(value, Tensor) and value.dim() > place.dim
    if fits and value.shape[place.dim] == place.outer * place.inner:
        return value.narrow(place.dim, 0, 0)
    return value


def _elementwise(*names: str) -> Any:
    """A rule for losses of broadcast operands; ``names`` are those that follow the batch."""

    def rule(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
        call = _bound(func, args, kwargs)
        if call.get("size_average") is not None or call.get("reduce") is not None:
            return GATHER
        operands = [call.get(name) for name in names]
        tensors = [one for one in operands if isinstance(one, Tensor)]
        together = aligned(world, [settled(world, one) for one in tensors])
        if together is None:
            return GATHER
        local, _, place = together
        found = iter(local)
        for name, operand in zip(names, operands, strict=True):
            if isinstance(operand, Tensor):
                call[name] = next(found)
        extra = call.get("pos_weight")
        if isinstance(extra, Shard):
            return GATHER
        # batchmean divides by the first dimension, which then has to be the batch.
        if call["reduction"] == "batchmean" and place.dim != 0:
            return GATHER
        return _weighted(world, func, call, place)

    return rule


for _func in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss):
    exactly(_func)(_elementwise("input", "target", "weight"))
exactly(F.binary_cross_entropy)(_elementwise("input", "target", "weight"))
exactly(F.binary_cross_entropy_with_logits)(_elementwise("input", "target", "weight"))
exactly(F.kl_div, F.poisson_nll_loss, F.soft_margin_loss, F.hinge_embedding_loss)(
    _elementwise("input", "target")
)
exactly(F.gaussian_nll_loss)(_elementwise("input", "target", "var"))


def _by_sample(*names: str) -> Any:
    """A rule for losses of one value a sample; the batch is the first dimension of all."""

    def rule(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
        call = _bound(func, args, kwargs)
        if call.get("size_average") is not None or call.get("reduce") is not None:
            return GATHER
        place = _first_place(call, names)
        if place is None or place.dim != 0:
            return GATHER
        for name in names:
            value = call[name]
            if isinstance(value, Shard):
                if value._place != place:
                    return GATHER
                call[name] = value.as_subclass(Tensor)
            elif isinstance(value, Tensor) and value.dim():
                call[name] = sliced(world, settled(world, value), place)
        others = [value for name, value in call.items() if name not in names]
        if any(isinstance(value, Shard) for value in others):
            return GATHER
        return _weighted(world, func, call, place)

    return rule


def _first_place(call: dict[str, Any], names: tuple[str, ...]) -> Placement | None:
    for name in names:
        if isinstance(call[name], Shard):
            place: Placement = call[name]._place
            return place
    return None


exactly(F.triplet_margin_loss)(_by_sample("anchor", "positive", "negative"))
exactly(F.cosine_embedding_loss)(_by_sample("input1", "input2", "target"))
exactly(F.margin_ranking_loss)(_by_sample("input1", "input2", "target"))
exactly(F.multi_margin_loss, F.multilabel_margin_loss)(_by_sample("input", "target"))
exactly(F.multilabel_soft_margin_loss)(_by_sample("input", "target"))


@exactly(F.cross_entropy, F.nll_loss)
def _cross_entropy(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    call = _bound(func, args, kwargs)
    if call.get("size_average") is not None or call.get("reduce") is not None:
        return GATHER
    place = _first_place(call, ("input", "target"))
    if place is None or place.dim != 0 or isinstance(call["weight"], Shard):
        return GATHER
    for name in ("input", "target"):
        value = call[name]
        if isinstance(value, Shard):
            if value._place != place:
                return GATHER
            call[name] = value.as_subclass(Tensor)
        else:
            call[name] = sliced(world, settled(world, value), place)
    target = call["target"]
    if call["input"].dim() < 2:
        return GATHER
    if target.is_floating_point() and target.dim() == call["input"].dim():
        return _weighted(world, func, call, place)  # class probabilities: divided by samples
    if call["reduction"] != "mean":
        return _weighted(world, func, call, place)
    return _class_mean(world, func, call, place)


def _class_mean(world: World, func: Any, call: dict[str, Any], place: Placement) -> Any:
    """A mean over targets that are not ignored, weighted by class: the divisor is global."""
    world.impure("a loss over the batch")
    rank = world.rank
    for name in ("input", "target"):
        call[name] = effective(call[name], place, rank)
    target, weight = call["target"], call["weight"]
    per_row = target.numel() // max(target.shape[0], 1) if target.numel() else 0
    if not per_row:
        per_row = 1
        for size in target.shape[1:]:
            per_row *= size
    nominal = float(place.length * per_row)
    total = func(**{**call, "reduction": "sum"})
    if world.options.sabotage == "sum-for-mean":
        return summand(total / max(target.numel(), 1))
    with torch.no_grad():
        kept = target != call["ignore_index"]
        if weight is None:
            count = kept.sum()
        else:
            count = weight.detach()[target.clamp_min(0)].mul(kept).sum()
    local = total / nominal
    return summand(local, Cell(local.detach(), Divisor(count, nominal)))


@exactly(F.ctc_loss)
def _ctc(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    call = _bound(func, args, kwargs)
    probabilities, targets = call["log_probs"], call["targets"]
    if not isinstance(probabilities, Shard) or targets.dim() != 2:
        return GATHER
    place = probabilities._place
    if place.dim != 1 or place.outer != 1 or place.inner != 1 or probabilities.dim() != 3:
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
