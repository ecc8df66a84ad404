"""Layers: each sample on its own, or, for batch normalisation, with global statistics."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reparto.runtime._layout import Placement, number
from reparto.runtime._norm import batch_norm
from reparto.runtime._rules._base import (
    BY_NAME,
    aligned,
    argument,
    exactly,
    named,
    wrapped,
)
from reparto.runtime._tensors import GATHER, Shard, Tracked, sliced

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _first_dim(min_ndim: int) -> Any:
    """A rule for layers whose input is (N, ...): the batch must stand first."""

    def rule(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
        tensor = args[0] if args else None
        if not isinstance(tensor, Shard) or tensor._place.dim != 0 or tensor.dim() < min_ndim:
            return GATHER
        if any(isinstance(value, Tracked) for value in [*args[1:], *kwargs.values()]):
            return GATHER
        result = func(tensor.as_subclass(Tensor), *args[1:], **kwargs)
        return wrapped(world, result, tensor._place)

    return rule


# The smallest number of dimensions at which the first one is the batch. Pools work channel by
# channel, so a single image of three dimensions may be shared out along its channels as well.
_BATCH_FIRST = {
    2: "group_norm prelu",
    3: """conv1d conv_transpose1d max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d
    adaptive_max_pool2d adaptive_max_pool3d max_pool1d_with_indices max_pool2d_with_indices
    max_pool3d_with_indices adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices
    lp_pool1d lp_pool2d interpolate upsample fold local_response_norm""",
    4: """conv2d conv_transpose2d pixel_shuffle pixel_unshuffle channel_shuffle upsample_nearest
    upsample_bilinear""",
    5: "conv3d conv_transpose3d",
}
for _ndim, _names in _BATCH_FIRST.items():
    for _name in _names.split():
        BY_NAME[_name] = _first_dim(_ndim)
exactly(F.unfold)(_first_dim(4))


@named("grid_sample", "max_unpool2d", "max_unpool1d")
def _two_batches(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    one, two = args[0], args[1]
    if not (isinstance(one, Shard) and isinstance(two, Shard)) or one._place != two._place:
        return GATHER
    if one._place.dim != 0:
        return GATHER
    result = func(one.as_subclass(Tensor), two.as_subclass(Tensor), *args[2:], **kwargs)
    return wrapped(world, result, one._place)


@named("affine_grid")
def _affine_grid(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    theta, size = args[0], argument(args, kwargs, 1, "size")
    if not isinstance(theta, Shard) or theta._place.dim != 0 or len(args) > 2:
        return GATHER
    sizes = [theta.shape[0], *[number(one) for one in size[1:]]]
    rest = {name: value for name, value in kwargs.items() if name != "size"}
    return wrapped(world, func(theta.as_subclass(Tensor), sizes, **rest), theta._place)


@named("pad")
def _pad(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, pad = args[0], argument(args, kwargs, 1, "pad")
    if not isinstance(tensor, Shard) or len(pad) // 2 > tensor.dim() - 1 - tensor._place.dim:
        return GATHER
    return wrapped(world, func(tensor.as_subclass(Tensor), *args[1:], **kwargs), tensor._place)


@named("layer_norm", "rms_norm")
def _layer_norm(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    normalized = argument(args, kwargs, 1, "normalized_shape")
    count = 1 if isinstance(normalized, int) else len(normalized)
    if not isinstance(tensor, Shard) or tensor._place.dim >= tensor.dim() - count:
        return GATHER
    return wrapped(world, func(tensor.as_subclass(Tensor), *args[1:], **kwargs), tensor._place)


@named("instance_norm")
def _instance_norm(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    if argument(args, kwargs, 1, "running_mean") is not None:
        return GATHER
    return _first_dim(3)(world, func, args, kwargs)


@named("batch_norm")
def _batch_norm(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    if func is torch.batch_norm:  # the same under another signature; nn and F do not use it
        return GATHER
    tensor = argument(args, kwargs, 0, "input")
    if not isinstance(tensor, Shard) or tensor._place.dim != 0:
        return GATHER
    result = batch_norm(world, tensor._place, tensor.as_subclass(Tensor), *args[1:], **kwargs)
    return wrapped(world, result, tensor._place)


@named("embedding")
def _embedding(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    index = argument(args, kwargs, 0, "input")
    weight = argument(args, kwargs, 1, "weight")
    if func is not F.embedding:  # torch.embedding(weight, indices, ...)
        return GATHER
    max_norm = argument(args, kwargs, 3, "max_norm")
    by_frequency = argument(args, kwargs, 5, "scale_grad_by_freq", default=False)
    if not isinstance(index, Shard) or isinstance(weight, Shard) or max_norm or by_frequency:
        return GATHER
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "weight")}
    result = func(index.as_subclass(Tensor), weight, *args[2:], **rest)
    return wrapped(world, result, index._place, index._site)


@named("embedding_bag")
def _embedding_bag(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    index, weight = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "weight")
    if func is not F.embedding_bag or not isinstance(index, Shard) or isinstance(weight, Shard):
        return GATHER
    if index.dim() != 2 or index._place.dim != 0 or len(args) > 8:
        return GATHER
    unusual = {2: "offsets", 3: "max_norm", 5: "scale_grad_by_freq"}
    if any(argument(args, kwargs, at, name) not in (None, False) for at, name in unusual.items()):
        return GATHER
    by_sample = kwargs.get("per_sample_weights")
    together = aligned(world, [index, by_sample])
    if together is None:
        return GATHER
    rest = {key: value for key, value in kwargs.items() if key not in ("input", "weight")}
    rest["per_sample_weights"] = together[0][1]
    return wrapped(world, func(together[0][0], weight, *args[2:], **rest), index._place)


@named("scaled_dot_product_attention")
def _attention(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    names = ("query", "key", "value")
    tensors = [argument(args, kwargs, at, name) for at, name in enumerate(names)]
    first = tensors[0]
    if not all(isinstance(one, Shard) for one in tensors):
        return GATHER
    place, from_right = first._place, first.dim() - first._place.dim
    if any(one._place != place or one.dim() != first.dim() for one in tensors) or from_right < 3:
        return GATHER
    mask = argument(args, kwargs, 3, "attn_mask")
    together = aligned(world, [first, mask]) if isinstance(mask, Tensor) else [[None, None]]
    if together is None:
        return GATHER
    dropout = argument(args, kwargs, 4, "dropout_p", default=0.0)
    if dropout and world.options.shared_draws:
        return world.on_whole_and_slice(func, args, kwargs, place)
    causal = argument(args, kwargs, 5, "is_causal", default=False)
    rest = {name: kwargs[name] for name in ("scale", "enable_gqa") if name in kwargs}
    slices = [one.as_subclass(Tensor) for one in tensors]
    with world.draws.inside(bool(dropout)):
        result = func(
            *slices, attn_mask=together[0][1], dropout_p=dropout, is_causal=causal, **rest
        )
    return wrapped(world, result, place)


@exactly(F.multi_head_attention_forward)
def _multi_head(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensors = args[:3]
    if len(args) < 12 or not all(isinstance(one, Shard) and one.dim() == 3 for one in tensors):
        return GATHER
    place = tensors[0]._place
    if place.dim != 1 or any(one._place != place for one in tensors):
        return GATHER
    dropout, training = args[10], kwargs.get("training", True)
    if dropout and training and world.options.shared_draws:
        output, weights = world.on_whole(func, args, kwargs)
        weights = None if weights is None else world.slice_of(weights, place.at(0))
        return world.slice_of(output, place), weights
    masks = _masks(world, kwargs, place, heads=args[4])
    if masks is None:
        return GATHER
    with world.draws.inside(bool(dropout and training)):
        slices = [one.as_subclass(Tensor) for one in tensors]
        output, weights = func(*slices, *args[3:], **{**kwargs, **masks})
    weights = None if weights is None else wrapped(world, weights, place.at(0))
    return wrapped(world, output, place), weights


def _masks(world: World, kwargs: Kwargs, place: Placement, heads: int) -> Kwargs | None:
    """This worker's rows of the masks that follow the batch; None if one follows another."""
    local: Kwargs = {}
    for name, inner in (("key_padding_mask", 1), ("attn_mask", heads)):
        mask = kwargs.get(name)
        rows = replace(place, dim=0, inner=place.inner * inner)
        if mask is None or (name == "attn_mask" and mask.dim() == 2):
            if isinstance(mask, Shard):
                return None  # a mask over time that was shared out
        elif isinstance(mask, Shard):
            if mask._place != rows:
                return None
            local[name] = mask.as_subclass(Tensor)
        else:
            local[name] = sliced(world, mask, rows)
    return local
