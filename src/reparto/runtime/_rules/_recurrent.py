"""Recurrent layers: the batch is the second dimension, or the first with ``batch_first``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from reparto.runtime._layout import Placement
from reparto.runtime._rules._base import named, wrapped
from reparto.runtime._tensors import GATHER, Shard, sliced, whole

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@named("lstm", "gru", "rnn_tanh", "rnn_relu")
def _recurrent(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or not isinstance(args[3], bool):
        return GATHER  # packed sequences: (data, batch_sizes, hx, ...)
    data, state, weights = args[:3]
    batch_first, dropout, training = args[8], args[5], args[6]
    states = list(state) if isinstance(state, (tuple, list)) else [state]
    batch_dim = 0 if batch_first else 1
    place = _place_of(world, data, states, batch_dim)
    if place is None:
        return GATHER
    if dropout and training and world.options.shared_draws:
        result = world.on_whole(func, args, kwargs)
        hidden = [world.slice_of(one, place.at(1)) for one in result[1:]]
        return (world.slice_of(result[0], place), *hidden)
    local_data = _local(world, data, place)
    local_states = [_local(world, one, place.at(1)).contiguous() for one in states]
    local_state = local_states if isinstance(state, (tuple, list)) else local_states[0]
    with world.draws.inside(bool(dropout and training)):
        output, *hidden = func(local_data, local_state, weights, *args[3:])
    wrapped_hidden = [wrapped(world, one, place.at(1)) for one in hidden]
    return (wrapped(world, output, place), *wrapped_hidden)


def _place_of(
    world: World, data: Tensor, states: list[Tensor], batch_dim: int
) -> Placement | None:
    """Where the batch stands; a tensor cut along time is cut along the batch instead."""
    if isinstance(data, Shard):
        place = data._place
        if data.dim() != 3 or place.outer != 1 or place.inner != 1:
            return None
        if place.dim == batch_dim:
            return place
        if place.dim == 1 - batch_dim and data._site is not None:
            world.move_site(data._site, batch_dim)
        return world.place_for(data.shape[batch_dim], batch_dim) if place.dim < 2 else None
    for state in states:
        if isinstance(state, Shard) and state._place.dim == 1 and state.dim() == 3:
            return state._place.at(batch_dim)
    return None


def _local(world: World, tensor: Tensor, place: Placement) -> Tensor:
    if isinstance(tensor, Shard):
        if tensor._place == place:
            return tensor.as_subclass(Tensor)
        return sliced(world, whole(world, tensor, "a sequence is cut along time"), place)
    return sliced(world, tensor, place)


@named("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def _cell(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    data, state, *weights = args
    states = list(state) if isinstance(state, (tuple, list)) else [state]
    first = next(one for one in [data, *states] if isinstance(one, Shard))
    place = first._place
    if place.dim != 0 or kwargs or any(isinstance(one, Shard) for one in weights):
        return GATHER
    if any(isinstance(one, Shard) and one._place != place for one in [data, *states]):
        return GATHER
    local = [_local(world, one, place) for one in states]
    local_state = local if isinstance(state, (tuple, list)) else local[0]
    return wrapped(world, func(_local(world, data, place), local_state, *weights), place)
