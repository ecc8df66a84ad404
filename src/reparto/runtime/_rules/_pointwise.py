"""Element by element: the same operation on every slice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._mirrors import wrote
from reparto.runtime._rules._base import aligned, argument, local, named, wrapped
from reparto.runtime._tensors import GATHER, Shard

if TYPE_CHECKING:
    from reparto.runtime._world import World

#: Operators and functions that torch does not tag as pointwise, or not under that name.
NAMES = frozenset(
    """__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__ __rtruediv__ __div__ __rdiv__
    __floordiv__ __rfloordiv__ __mod__ __rmod__ __pow__ __rpow__ __neg__ __pos__ __abs__
    __invert__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __lshift__ __rlshift__ __rshift__
    __rrshift__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ masked_fill where clamp clip clamp_min
    clamp_max rsub true_divide relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh
    hardswish hardsigmoid softplus softsign tanhshrink logsigmoid softshrink hardshrink
    threshold sigmoid tanh nan_to_num bitwise_not logical_not square clone contiguous
    isclose float_power special_expit float double half bfloat16 long int short byte char bool
    cpu cuda type zeros_like ones_like empty_like full_like positive alias pin_memory real imag
    abs absolute log_sigmoid _threshold""".split()
)

#: In-place forms: the first argument is written.
IN_PLACE = frozenset(
    """__iadd__ __isub__ __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__
    __ixor__ __ilshift__ __irshift__ copy_ fill_ zero_ masked_fill_ clamp_ clip_ relu_ leaky_relu_
    elu_ selu_ celu_ hardtanh_ sigmoid_ tanh_ threshold_ square_""".split()
)

_NOT_POINTWISE = frozenset(
    "dropout native_dropout bernoulli rand_like randn_like randint_like normal rrelu".split()
)


def is_pointwise(name: str) -> bool:
    """Whether torch or we know an operation of that name to work element by element."""
    if name in NAMES:
        return True
    return name not in _NOT_POINTWISE and _is_tagged(name)


def is_pointwise_in_place(name: str) -> bool:
    """Whether it is the in-place form of one."""
    if name in IN_PLACE:
        return True
    return name.endswith("_") and not name.endswith("__") and is_pointwise(name[:-1])


def _is_tagged(name: str) -> bool:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None or not hasattr(packet, "overloads"):
        return False
    tags = [getattr(packet, overload).tags for overload in packet.overloads()]
    return any(torch.Tag.pointwise in found for found in tags)


def pointwise(world: World, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run on slices; replicated operands are sliced where they follow the batch."""
    if kwargs.get("out") is not None or (func.__name__ == "where" and len(args) == 1):
        return GATHER
    names = list(kwargs)
    together = aligned(world, [*args, *kwargs.values()])
    if together is None:
        return GATHER
    slices, _, place = together
    result = func(*slices[: len(args)], **dict(zip(names, slices[len(args) :], strict=True)))
    if args and isinstance(args[0], Shard) and (kwargs.get("inplace") or args[-1] is True):
        wrote(world, args[0])  # an activation in place
    return wrapped(world, result, place, _site(args))


def pointwise_in_place(
    world: World, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run in place on the slice; a replicated target needs the whole operand instead."""
    target = args[0]
    if not isinstance(target, Shard):
        return GATHER
    together = aligned(world, [*args, *kwargs.values()])
    if together is None or together[1] != target.dim():
        return GATHER
    slices = together[0]
    func(target, *slices[1 : len(args)], **dict(zip(kwargs, slices[len(args) :], strict=True)))
    wrote(world, target)
    return target


def _site(args: tuple[Any, ...]) -> Any:
    for value in args:
        if isinstance(value, Shard) and value._site is not None:
            return value._site
    return None


@named("to", "type_as")
def _converted(world: World, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Another tensor lends its type and its device, never its shape."""
    tensor = args[0]
    slices = [local(value) for value in args]
    result = func(*slices, **{name: local(value) for name, value in kwargs.items()})
    if not isinstance(tensor, Shard):
        return result
    return wrapped(world, result, tensor._place, tensor._site)


@named("one_hot")
def _one_hot(world: World, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    classes = argument(args, kwargs, 1, "num_classes", default=-1)
    index = args[0] if args else kwargs["input"]
    if classes < 0 or not isinstance(index, Shard):
        return GATHER
    return wrapped(world, func(index.as_subclass(Tensor), classes), index._place)


@named("expand_as")
def _expand_as(world: World, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    together = aligned(world, list(args[:2]))
    if together is None or not isinstance(args[1], Shard):
        return GATHER
    return wrapped(world, func(*together[0]), args[1]._place)
