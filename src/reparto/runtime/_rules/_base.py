"""What rules are made of: reading arguments, aligning dimensions, wrapping results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from reparto.runtime._layout import BatchInt, Placement
from reparto.runtime._tensors import RULES, Rule, Shard, Summand, reduced, shard, sliced

if TYPE_CHECKING:
    from reparto.runtime._world import World

#: Rules by the name of the function, for those that exist as ``torch.f`` and ``Tensor.f``.
BY_NAME: dict[str, Rule] = {}


def named(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for functions and methods of these names."""

    def register(rule: Rule) -> Rule:
        for name in names:
            assert name not in BY_NAME, name
            BY_NAME[name] = rule
        return rule

    return register


def exactly(*functions: Any) -> Callable[[Rule], Rule]:
    """Register a rule for these function objects."""

    def register(rule: Rule) -> Rule:
        for function in functions:
            RULES[function] = rule
        return rule

    return register


def argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], position: int, *names: str, default: Any = None
) -> Any:
    """An argument by position or by any of its names."""
    if len(args) > position:
        return args[position]
    for name in names:
        if name in kwargs:
            return kwargs[name]
    return default


def with_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, value: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments with one of them replaced."""
    if len(args) > position:
        return (*args[:position], value, *args[position + 1 :]), kwargs
    return args, {**kwargs, name: value}


def wrapped(world: World, result: Any, place: Placement, site: Any = None) -> Any:
    """Mark every tensor of a result as shared out at ``place``; keeps named tuples."""
    if isinstance(result, Tensor):
        return shard(result, place, site)
    if isinstance(result, (tuple, list)):
        parts = [wrapped(world, part, place, site) for part in result]
        return type(result)(parts)
    return result


def settled(world: World, value: Any) -> Any:
    """A Summand among the arguments of an operation on Shards enters as its global value."""
    return reduced(world, value) if isinstance(value, Summand) else value


def aligned(world: World, tensors: list[Any]) -> tuple[list[Any], int, Placement] | None:
    """Line up broadcast operands so that an element-wise operation can run on slices.

    Returns:
        The local operands, the number of dimensions of the result, and where it is shared out;
        None if the operands are shared out along different dimensions.
    """
    shards = [t for t in tensors if isinstance(t, Shard)]
    first = shards[0]._place
    from_right = shards[0].dim() - first.dim
    for other in shards[1:]:
        place = other._place
        if other.dim() - place.dim != from_right or not place.same_rows(first):
            return None
    ndim = max(t.dim() for t in tensors if isinstance(t, Tensor))
    local: list[Any] = []
    for tensor in tensors:
        if isinstance(tensor, Shard):
            local.append(tensor.as_subclass(Tensor))
        elif isinstance(tensor, Tensor):
            tensor = settled(world, tensor)
            dim = tensor.dim() - from_right
            if dim >= 0 and tensor.shape[dim] != 1:
                tensor = sliced(world, tensor, first.at(dim))
            local.append(tensor)
        else:
            if isinstance(tensor, BatchInt):
                world.impure("the batch size is used as a number")
            local.append(tensor)
    return local, ndim, first.at(ndim - from_right)


def normal_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the left."""
    return dim + ndim if dim < 0 else dim


def normal_dims(dim: Any, ndim: int) -> tuple[int, ...]:
    """Dimensions counted from the left; all of them for None or an empty list."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(ndim))
    if isinstance(dim, int):
        return (normal_dim(dim, ndim),)
    return tuple(normal_dim(one, ndim) for one in dim)


def without_dims(place: Placement, dims: tuple[int, ...], keepdim: bool) -> Placement:
    """Where the sharing-out stands after other dimensions were reduced away."""
    if keepdim:
        return place
    return place.at(place.dim - sum(one < place.dim for one in dims))
