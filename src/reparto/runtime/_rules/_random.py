"""Draws that follow the batch.

In an ordinary run each worker draws for its own rows from its own generator, so that unequal
slices cannot let the shared one drift apart. Under ``verify`` (``shared_draws``) the draw is made
for the whole batch from the shared generator, as the sequential script would, and sliced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from reparto.runtime._mirrors import wrote
from reparto.runtime._rules._base import aligned, argument, named, wrapped
from reparto.runtime._tensors import GATHER, Shard, Tracked

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@named(
    "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout",
    "feature_dropout",
)  # fmt: skip
def _dropout(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = argument(args, kwargs, 0, "input")
    rate = argument(args, kwargs, 1, "p", default=0.5)
    training = argument(args, kwargs, 2, "training", "train", default=True)
    by_channel = func.__name__ not in ("dropout", "alpha_dropout")
    if by_channel and tensor._place.dim > 1:
        return GATHER
    rest_args, rest_kwargs = args[1:], {k: v for k, v in kwargs.items() if k != "input"}
    if not training or not rate:
        result = func(tensor.as_subclass(Tensor), *rest_args, **rest_kwargs)
        return wrapped(world, result, tensor._place)
    result = _drawn(world, func, tensor, rest_args, rest_kwargs)
    if not argument(args, kwargs, 3, "inplace"):
        return result
    if world.options.shared_draws:  # it was drawn on a copy
        tensor.copy_(result)
    wrote(world, tensor)
    return tensor


@named(
    "bernoulli", "rand_like", "randn_like", "randint_like", "poisson", "rrelu", "native_dropout"
)  # fmt: skip
def _like(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    if not args or any(isinstance(value, Tracked) for value in [*args[1:], *kwargs.values()]):
        return GATHER
    if kwargs.get("generator") is not None:  # the script's own, the same on every worker
        return world.on_whole_and_slice(func, args, kwargs, args[0]._place)
    return _drawn(world, func, args[0], args[1:], kwargs)


@named("gumbel_softmax")
def _gumbel(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = argument(args, kwargs, 0, "logits")
    dim = argument(args, kwargs, 4, "dim", default=-1)
    if dim % tensor.dim() == tensor._place.dim or not args:
        return GATHER
    return _drawn(world, func, tensor, args[1:], kwargs)


@named("multinomial")
def _multinomial(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0] if args else kwargs["input"]
    if tensor._place.dim != 0 or tensor.dim() != 2 or kwargs.get("generator") or not args:
        return GATHER
    return _drawn(world, func, tensor, args[1:], kwargs)


@named("normal")
def _normal(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    together = aligned(world, list(args))
    if together is None or kwargs:
        return GATHER
    slices, _, place = together
    if world.options.shared_draws:
        return world.on_whole_and_slice(func, args, kwargs, place)
    with world.draws.inside():
        return wrapped(world, func(*slices), place)


def _drawn(world: World, func: Any, tensor: Shard, args: Args, kwargs: Kwargs) -> Any:
    place = tensor._place
    if world.options.shared_draws:
        return world.on_whole_and_slice(func, (tensor, *args), kwargs, place)
    with world.draws.inside():
        return wrapped(world, func(tensor.as_subclass(Tensor), *args, **kwargs), place)


@named(
    "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_", "cauchy_",
    "geometric_", "dropout_", "alpha_dropout_", "feature_dropout_", "rrelu_",
)  # fmt: skip
def _fill(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = args[0]
    if not isinstance(tensor, Shard):
        return GATHER
    shared = world.options.shared_draws or kwargs.get("generator") is not None
    if shared or any(isinstance(value, Tensor) for value in [*args[1:], *kwargs.values()]):
        tensor.copy_(world.on_whole_and_slice(func, args, kwargs, tensor._place))
    else:
        with world.draws.inside():
            func(tensor, *args[1:], **kwargs)
    wrote(world, tensor)
    return tensor
