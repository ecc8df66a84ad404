"""Products: the batch is a row, or a dimension that is broadcast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._layout import Placement, effective
from reparto.runtime._rules._base import (
    aligned_slice,
    argument,
    fits,
    local,
    named,
    wrapped,
)
from reparto.runtime._tensors import GATHER, Shard, sliced, summand, whole

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
    result = func(tensor.as_subclass(Tensor), weight, bias)
    return wrapped(world, result, tensor._place)


@named("matmul", "mm", "bmm", "mv", "__matmul__", "__rmatmul__")
def _matmul(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    one = argument(args, kwargs, 0, "input")
    two = argument(args, kwargs, 1, "mat2", "other", "vec", "tensor2")
    if func.__name__ == "__rmatmul__":
        one, two = two, one
    return product(world, one, two)


def product(world: World, one: Tensor, two: Tensor) -> Any:
    """``one @ two`` where at least one of them is a Shard."""
    if torch.strided is not one.layout or torch.strided is not two.layout:
        return GATHER
    if _is_summed(one, 1) or _is_summed(two, min(two.dim(), 2)):
        return _summed_over(world, one, two)
    if isinstance(one, Shard) and isinstance(two, Shard) and not _same_batch(one, two):
        # Rows against rows (in-batch negatives): keep the rows of one, take all of the other.
        two = whole(world, two, "rows are compared with rows of other workers")
    kept, other = (one, two) if isinstance(one, Shard) else (two, one)
    assert isinstance(kept, Shard)
    place, from_right = kept._place, kept.dim() - kept._place.dim
    if not isinstance(other, Shard) and from_right > 2:
        if not fits(other, from_right, place):
            return GATHER
        other = aligned_slice(world, other, from_right, place)
    slices = (local(kept), local(other)) if kept is one else (local(other), local(kept))
    result = slices[0] @ slices[1]
    # A vector takes a dimension away: the last one, or the last but one.
    dim = result.dim() - from_right + (two.dim() == 1) + (one.dim() == 1 and from_right > 2)
    return wrapped(world, result, place.at(dim))


def _same_batch(one: Shard, two: Shard) -> bool:
    one_right, two_right = one.dim() - one._place.dim, two.dim() - two._place.dim
    return one_right == two_right and one_right > 2 and one._place.same_rows(two._place)


def _is_summed(tensor: Tensor, from_right: int) -> bool:
    return isinstance(tensor, Shard) and tensor.dim() - tensor._place.dim == from_right


def _summed_over(world: World, one: Tensor, two: Tensor) -> Any:
    """Each worker multiplies its own rows: a term of the sum over the batch."""
    at = min(two.dim(), 2)
    place = (one if _is_summed(one, 1) else two)._place  # type: ignore[attr-defined]
    slices: list[Any] = []
    for tensor, from_right in ((one, 1), (two, at)):
        dim = tensor.dim() - from_right
        if isinstance(tensor, Shard):
            if tensor._place.dim != dim or not tensor._place.same_rows(place):
                return GATHER
            rows = tensor.as_subclass(Tensor)
        elif tensor.shape[dim] == place.length:
            rows = sliced(world, tensor, place.at(dim))
        else:
            return GATHER  # torch will tell what does not fit
        slices.append(effective(rows, place.at(dim), world.rank))
    world.impure("a sum over the batch")
    return summand(slices[0] @ slices[1])


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
    if len(terms) != len(operands):
        return GATHER
    found = _letter(terms, operands)
    if found is None:
        return GATHER
    letter, place = found
    slices: list[Any] = []
    for term, operand in zip(terms, operands, strict=True):
        operand = local(operand)
        if letter in term and not isinstance(operands[len(slices)], Shard):
            operand = sliced(world, operand, place.at(term.index(letter)))
        slices.append(operand)
    if letter in output:
        result = torch.einsum(equation, *slices)
        return wrapped(world, result, place.at(output.index(letter)))
    world.impure("a sum over the batch")
    own = [
        effective(one, place.at(term.index(letter)), world.rank) if letter in term else one
        for term, one in zip(terms, slices, strict=True)
    ]
    return summand(torch.einsum(equation, *own))


def _letter(terms: list[str], operands: list[Tensor]) -> tuple[str, Placement] | None:
    """The letter of the batch, if it is the same for all operands and stretched by none."""
    found = {
        (term[operand._place.dim], operand._place.at(0))
        for term, operand in zip(terms, operands, strict=True)
        if isinstance(operand, Shard)
    }
    letter, place = next(iter(found))
    for term, operand in zip(terms, operands, strict=True):
        whole_rows = isinstance(operand, Shard) or letter not in term
        if term.count(letter) > 1 or term.count(letter) < isinstance(operand, Shard):
            return None
        if not whole_rows and operand.shape[term.index(letter)] != place.length:
            return None
    return (letter, place) if len(found) == 1 else None


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
