"""What rules are made of: reading arguments, aligning dimensions, wrapping results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from reparto.runtime._layout import BatchInt, Placement
from reparto.runtime._tensors import RULES, Rule, Shard, shard, sliced

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


def wrapped(world: World, result: Any, place: Placement, site: Any = None) -> Any:
    """Mark every tensor of a result as shared out at ``place``; keeps named tuples."""
    if isinstance(result, Tensor):
        return shard(result, place, site)
    if isinstance(result, (tuple, list)):
        parts = [wrapped(world, part, place, site) for part in result]
        return type(result)(parts)
    return result


def viewed(world: World, result: Any, place: Placement, tensor: Shard) -> Any:
    """The same for views of a Shard: what is written into them is written into it."""
    made = wrapped(world, result, place, tensor._site)
    for one in made if isinstance(made, (tuple, list)) else (made,):
        one._cut = tensor if tensor._data is not None else tensor._cut
    return made


def local(value: Any) -> Any:
    """A Shard as this worker's plain slice; anything else as it is."""
    return value.as_subclass(Tensor) if isinstance(value, Shard) else value


def aligned(world: World, tensors: list[Any]) -> tuple[list[Any], int, Placement] | None:
    """Line up broadcast operands so that an element-wise operation can run on slices.

    Returns:
        The local operands, the number of dimensions of the result, and where it is shared out;
        None if the operands are shared out along different dimensions, or if a batch of one is
        stretched to the length of another operand.
    """
    shards = [one for one in tensors if isinstance(one, Shard)]
    first = shards[0]._place
    from_right = shards[0].dim() - first.dim
    if any(not _stands_at(one, from_right, first) for one in shards[1:]):
        return None
    if not all(fits(one, from_right, first) for one in tensors if isinstance(one, Tensor)):
        return None
    ndim = max(one.dim() for one in tensors if isinstance(one, Tensor))
    slices = [_aligned_one(world, one, from_right, first) for one in tensors]
    return slices, ndim, first.at(ndim - from_right)


def _stands_at(tensor: Shard, from_right: int, place: Placement) -> bool:
    return tensor.dim() - tensor._place.dim == from_right and tensor._place.same_rows(place)


def fits(tensor: Tensor, from_right: int, place: Placement) -> bool:
    """Whether a replicated operand has the batch's length there, or one row for all."""
    dim = tensor.dim() - from_right
    return isinstance(tensor, Shard) or dim < 0 or tensor.shape[dim] in (1, place.length)


def _aligned_one(world: World, value: Any, from_right: int, place: Placement) -> Any:
    if isinstance(value, Shard):
        return value.as_subclass(Tensor)
    if isinstance(value, Tensor):
        return aligned_slice(world, value, from_right, place)
    if isinstance(value, BatchInt):
        world.impure("the batch size is used as a number")
    return value


def aligned_slice(world: World, tensor: Tensor, from_right: int, place: Placement) -> Tensor:
    """This worker's rows of a replicated operand, all of it where it has one row for all."""
    dim = tensor.dim() - from_right
    follows = dim >= 0 and tensor.shape[dim] != 1
    return sliced(world, tensor, place.at(dim)) if follows else tensor


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
