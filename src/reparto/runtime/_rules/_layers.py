"""Layers: each sample on its own, or, for batch normalisation, with global statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from reparto.runtime._norm import batch_norm
from reparto.runtime._rules._base import BY_NAME, argument, exactly, named, wrapped
from reparto.runtime._tensors import GATHER, Shard, sliced

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _others_are_plain(args: Args, kwargs: Kwargs) -> bool:
    return not any(isinstance(value, Shard) for value in [*args[1:], *kwargs.values()])


def _first_dim(min_ndim: int) -> Any:
    """A rule for layers whose input is (N, ...): the batch must stand first."""

    def rule(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
        tensor = argument(args, kwargs, 0, "input")
        if not isinstance(tensor, Shard) or tensor._place.dim != 0 or tensor.dim() < min_ndim:
            return GATHER
        if kwargs.get("input") is not None or not _others_are_plain(args, kwargs):
            return GATHER
        result = func(tensor.as_subclass(Tensor), *args[1:], **kwargs)
        return wrapped(world, result, tensor._place)

    return rule


for _name in "conv1d conv_transpose1d".split():
    BY_NAME[_name] = _first_dim(3)
for _name in "conv2d conv_transpose2d".split():
    BY_NAME[_name] = _first_dim(4)
for _name in "conv3d conv_transpose3d".split():
    BY_NAME[_name] = _first_dim(5)
for _name in (
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
    "adaptive_max_pool3d max_pool1d_with_indices max_pool2d_with_indices lp_pool1d lp_pool2d "
    "max_pool3d_with_indices boolean_dispatch fn interpolate upsample pixel_shuffle "
    "pixel_unshuffle channel_shuffle local_response_norm fold group_norm upsample_nearest "
    "upsample_bilinear adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices"
).split():
    BY_NAME[_name] = _first_dim(3)
BY_NAME["group_norm"] = _first_dim(2)
BY_NAME["prelu"] = _first_dim(2)


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
    local_size = [theta.shape[0], *[int(one) for one in size[1:]]]
    return wrapped(world, func(theta.as_subclass(Tensor), local_size, *args[2:]), theta._place)


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
    if not isinstance(tensor, Shard) or tensor._place.dim != 0 or tensor._place.outer != 1:
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
    index, weight = args[0], args[1]
    if func is not F.embedding_bag or not isinstance(index, Shard) or isinstance(weight, Shard):
        return GATHER
    unusual = argument(args, kwargs, 2, "offsets") is not None or index.dim() != 2
    if unusual or index._place.dim != 0 or argument(args, kwargs, 3, "max_norm"):
        return GATHER
    if argument(args, kwargs, 5, "scale_grad_by_freq", default=False):
        return GATHER
    weights = kwargs.get("per_sample_weights")
    if isinstance(weights, Shard):
        kwargs = {**kwargs, "per_sample_weights": weights.as_subclass(Tensor)}
    return wrapped(world, func(index.as_subclass(Tensor), *args[1:], **kwargs), index._place)




@named("scaled_dot_product_attention")
def _attention(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    query, key, value = args[:3]
    tensors = (query, key, value)
    if not all(isinstance(one, Shard) for one in tensors):
        return GATHER
    place = query._place
    if any(one._place != place or one.dim() != query.dim() for one in tensors):
        return GATHER
    if place.dim >= query.dim() - 2:
        return GATHER
    mask = argument(args, kwargs, 3, "attn_mask")
    if isinstance(mask, Tensor):
        local_mask = _aligned_mask(world, mask, place, query.dim())
        if local_mask is None:
            return GATHER
        mask = local_mask
    dropout = argument(args, kwargs, 4, "dropout_p", default=0.0)
    if dropout and world.options.shared_draws:
        return world.on_whole_and_slice(func, args, kwargs, place)
    local = [one.as_subclass(Tensor) for one in tensors]
    causal = argument(args, kwargs, 5, "is_causal", default=False)
    rest = {name: kwargs[name] for name in ("scale", "enable_gqa") if name in kwargs}
    with world.own_draws(bool(dropout)):
        result = func(*local, attn_mask=mask, dropout_p=dropout, is_causal=causal, **rest)
    return wrapped(world, result, place)


def _aligned_mask(world: World, mask: Tensor, place: Any, ndim: int) -> Tensor | None:
    from_right = ndim - place.dim
    if isinstance(mask, Shard):
        same = mask.dim() - mask._place.dim == from_right and mask._place.same_rows(place)
        return mask.as_subclass(Tensor) if same else None
    dim = mask.dim() - from_right
    if dim >= 0 and mask.shape[dim] != 1:
        return sliced(world, mask, place.at(dim))
    return mask


@exactly(F.multi_head_attention_forward)
def _multi_head(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    query, key, value = args[:3]
    tensors = (query, key, value)
    if not all(isinstance(one, Shard) and one.dim() == 3 for one in tensors):
        return GATHER
    place = query._place
    plain_rows = place.outer == 1 and place.inner == 1 and place.dim == 1
    if not plain_rows or any(one._place != place for one in tensors):
        return GATHER
    dropout, training = args[10], kwargs.get("training", True)
    if dropout and training and world.options.shared_draws:
        result = world.on_whole(func, args, kwargs)
        output = world.slice_of(result[0], place)
        weights = None if result[1] is None else world.slice_of(result[1], place.at(0))
        return output, weights
    local_kwargs = dict(kwargs)
    for name in ("key_padding_mask", "attn_mask"):
        mask = kwargs.get(name)
        if mask is None or (name == "attn_mask" and mask.dim() == 2):
            continue
        heads = args[4] if name == "attn_mask" else 1
        if isinstance(mask, Shard):
            local_kwargs[name] = mask.as_subclass(Tensor)
        else:
            rows = type(place)(place.split, 0, 1, heads)
            local_kwargs[name] = sliced(world, mask, rows)
    with world.own_draws(bool(dropout and training)):
        local = [one.as_subclass(Tensor) for one in tensors]
        output, weights = func(*local, *args[3:], **local_kwargs)
    weights = None if weights is None else wrapped(world, weights, place.at(0))
    return wrapped(world, output, place), weights


