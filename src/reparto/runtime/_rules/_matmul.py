"""Products: the batch is a row, or a dimension that is broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._rules._base import argument, named, settled, wrapped
from reparto.runtime._tensors import GATHER, Shard, sliced, whole

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@named("linear")
def _linear(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor = argument(args, kwargs, 0, "input")
    weight = argument(args, kwargs, 1, "weight")
    bias = argument(args, kwargs, 2, "bias")
    if not isinstance(tensor, Shard) or isinstance(weight, Shard) or isinstance(bias, Shard):
        return GATHER
    if tensor._place.dim == tensor.dim() - 1:
        return GATHER
    result = func(tensor.as_subclass(Tensor), settled(world, weight), settled(world, bias))
    return wrapped(world, result, tensor._place)


@named("matmul", "mm", "bmm", "mv", "__matmul__", "__rmatmul__")
def _matmul(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    one = argument(args, kwargs, 0, "input")
    two = argument(args, kwargs, 1, "mat2", "other", "vec", "tensor2")
    if func.__name__ == "__rmatmul__":
        one, two = two, one
    return product(world, settled(world, one), settled(world, two))


def product(world: World, one: Tensor, two: Tensor) -> Any:
    """``one @ two`` where at least one of them is a Shard."""
    if isinstance(one, Shard) and isinstance(two, Shard) and not _same_batch(one, two):
        # Rows against rows (in-batch negatives): keep the rows of one, take all of the other.
        two = whole(world, two, "rows are compared with rows of other workers")
    if isinstance(one, Shard):
        return _shard_left(world, one, two)
    return _shard_right(world, one, two)  # type: ignore[arg-type]


def _same_batch(one: Shard, two: Shard) -> bool:
    one_right, two_right = one.dim() - one._place.dim, two.dim() - two._place.dim
    same_rows = one._place.same_rows(two._place)
    return one_right == two_right and one_right > 2 and same_rows


def _shard_left(world: World, one: Shard, two: Tensor) -> Any:
    place, from_right = one._place, one.dim() - one._place.dim
    if from_right == 1:
        return GATHER  # the batch itself is summed over
    local_two = two.as_subclass(Tensor) if isinstance(two, Shard) else two
    if not isinstance(two, Shard) and from_right > 2:
        dim = two.dim() - from_right
        if dim >= 0 and two.shape[dim] != 1:
            local_two = sliced(world, two, place.at(dim))
    result = one.as_subclass(Tensor) @ local_two
    dim = result.dim() - from_right + (two.dim() == 1)
    return wrapped(world, result, place.at(dim))


def _shard_right(world: World, one: Tensor, two: Shard) -> Any:
    place, from_right = two._place, two.dim() - two._place.dim
    if from_right == 2 or two.dim() == 1:
        return GATHER
    if from_right > 2:
        dim = one.dim() - from_right
        if dim >= 0 and one.shape[dim] != 1:
            one = sliced(world, one, place.at(dim))
    result = one @ two.as_subclass(Tensor)
    return wrapped(world, result, place.at(result.dim() - from_right))


@named("addmm", "baddbmm", "addbmm")
def _addmm(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    bias, one, two = args[:3]
    if kwargs or isinstance(bias, Shard) or func.__name__ != "addmm":
        return GATHER
    if not isinstance(one, Shard) or one._place.dim != 0 or bias.dim() != 1:
        return GATHER
    return wrapped(
        world, torch.addmm(bias, one.as_subclass(Tensor), whole(world, two)), one._place
    )


@named("einsum")
def _einsum(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    equation = args[0]
    operands = list(args[1]) if isinstance(args[1], (list, tuple)) else list(args[1:])
    if not isinstance(equation, str) or "..." in equation or "->" not in equation:
        return GATHER
    left, output = equation.replace(" ", "").split("->")
    terms = left.split(",")
    letters = {
        (term[operand._place.dim], operand._place)
        for term, operand in zip(terms, operands, strict=True)
        if isinstance(operand, Shard)
    }
    letter, place = next(iter(letters))
    same = all(other == letter and found.same_rows(place) for other, found in letters)
    if not same or letter not in output:
        return GATHER
    local = []
    for term, operand in zip(terms, operands, strict=True):
        if isinstance(operand, Shard):
            local.append(operand.as_subclass(Tensor))
        elif letter in term:
            local.append(sliced(world, operand, place.at(term.index(letter))))
        else:
            local.append(operand)
    return wrapped(world, torch.einsum(equation, *local), place.at(output.index(letter)))


@named("bilinear")
def _bilinear(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    one, two = args[0], args[1]
    if not (isinstance(one, Shard) and isinstance(two, Shard)) or one._place != two._place:
        return GATHER
    if one._place.dim == one.dim() - 1:
        return GATHER
    result = func(one.as_subclass(Tensor), two.as_subclass(Tensor), *args[2:], **kwargs)
    return wrapped(world, result, one._place)


@named("cdist")
def _cdist(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    one, two = args[0], args[1]
    if not isinstance(one, Shard) or one._place.dim == one.dim() - 1 or one.dim() != 2:
        return GATHER
    other = whole(world, two) if isinstance(two, Shard) else two
    return wrapped(world, func(one.as_subclass(Tensor), other, *args[2:], **kwargs), one._place)
