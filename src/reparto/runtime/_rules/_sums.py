"""Rules for Summands: linear operations keep a sum a sum; others need its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._tensors import (
    GATHER,
    Cell,
    Divisor,
    Rule,
    Summand,
    estimated,
    exact_summand,
    plain,
    reduced,
    summand,
)

if TYPE_CHECKING:
    from reparto.runtime._world import World

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

SUMS: dict[str, Rule] = {}


def _named(names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names.split():
            SUMS[name] = rule
        return rule

    return register


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@_named("mul __mul__ __rmul__ multiply")
def _mul(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    one, two = args if len(args) == 2 else (args[0], kwargs["other"])
    if isinstance(one, Summand) and isinstance(two, Summand):
        return GATHER
    if isinstance(one, Summand):
        return _scaled(world, one, two, lambda local: func(local, two))
    return _scaled(world, two, one, lambda local: func(one, local))


@_named("div __truediv__ true_divide divide")
def _div(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    one = args[0]
    two = args[1] if len(args) > 1 else kwargs.get("other")
    if not isinstance(one, Summand) or kwargs.get("rounding_mode"):
        return GATHER
    if _is_number(two) and not two:
        return GATHER  # a worker without rows has no sign to tell
    divisor: Any = reduced(world, two) if isinstance(two, Summand) else two
    factor = 1 / divisor if _is_number(divisor) else divisor
    return _scaled(world, one, factor, lambda local: func(local, divisor))


def _scaled(world: World, term: Summand, factor: Any, scale: Any) -> Any:
    """A multiple of a sum; by a plain number it shares the cell of the sum itself."""
    if _learns(factor):  # from the value itself, which then has to be right
        return summand(scale(exact_summand(world, term)))
    local = scale(term)
    if _is_number(factor) and local.is_floating_point() and term.is_floating_point():
        return summand(local, term._cell, term._scale * float(factor))
    return summand(local, Cell(local.detach(), term._cell.divisor))


def _learns(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled()


@_named("neg __neg__ negative")
def _neg(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return _scaled(world, args[0], -1.0, func)


@_named("add __add__ __radd__ sub __sub__ __rsub__ subtract rsub")
def _add(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    if len(args) < 2 or kwargs.get("out") is not None:
        return GATHER
    one, two = args[:2]
    both = isinstance(one, Summand) and isinstance(two, Summand)
    if not both and _is_number(one if isinstance(two, Summand) else two):
        number = one if isinstance(two, Summand) else two
        if number == 0 and func.__name__ in ("__add__", "__radd__", "add"):
            term = two if isinstance(two, Summand) else one
            return summand(func(*args, **kwargs), term._cell, term._scale)
    return _added(world, func, one, two, args[2:], kwargs)


def _added(world: World, func: Any, one: Any, two: Any, rest: Args, kwargs: Kwargs) -> Any:
    local = [
        exact_summand(world, part) if isinstance(part, Summand) else _share(world, part)
        for part in (one, two)
    ]
    return summand(func(*local, *rest, **kwargs))


def _share(world: World, value: Any) -> Any:
    """A replicated term of a sum: counted once over all workers."""
    if world.apart:
        return value * world.share
    if isinstance(value, Tensor):
        if _learns(value):
            return value / world.size
        return value if world.rank == 0 else torch.zeros_like(value)
    return value if world.rank == 0 else type(value)(0)


@_named("__iadd__ add_ __isub__ sub_")
def _add_in_place(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    target, other = args[:2]
    if not isinstance(target, Summand) or target._cell.divisor is not None:
        return GATHER
    local = exact_summand(world, other) if isinstance(other, Summand) else _share(world, other)
    return _written(target, None, lambda: func(target, local, *args[2:], **kwargs))


@_named("__imul__ mul_ __itruediv__ div_")
def _scale_in_place(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    target, factor = args[:2]
    if not isinstance(target, Summand) or isinstance(factor, Summand) or _learns(factor):
        return GATHER
    divisor = target._cell.divisor
    return _written(target, divisor, lambda: func(target, factor, *args[2:], **kwargs))


def _written(target: Summand, divisor: Divisor | None, write: Any) -> Summand:
    target._cell.local = target._cell.local.clone()  # which other sums may share
    write()
    target._cell = Cell(target.as_subclass(Tensor).detach(), divisor)
    target._scale = 1.0
    return target


@_named("detach clone contiguous cpu cuda to float double alias data.__get__ __deepcopy__")
def _same(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    term = args[0]
    if not isinstance(term, Summand):  # of another type like a sum
        return func(term, *[plain(value) for value in args[1:]], **kwargs)
    if func.__name__ == "__deepcopy__":
        local = term.as_subclass(Tensor).detach().clone()
    elif func.__name__ == "__get__":
        local = term.as_subclass(Tensor).detach()
    else:
        local = func(*args, **kwargs)
    if term.is_floating_point() and not local.is_floating_point():
        return GATHER  # parts are not rounded alone
    return summand(local, term._cell, term._scale)


@_named("item __float__ __int__ __bool__ __index__ __complex__ tolist __format__ isnan isfinite")
def _read(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    if world.apart:
        if func.__name__ == "item":
            return estimated(world, args[0])
        if func.__name__ not in ("tolist", "__format__"):  # which are for people to look at
            with world.agreeing():  # a script decides by what it reads
                return _read(world, func, args, kwargs)
    with torch.no_grad():  # whoever reads the value needs no way back
        return func(reduced(world, args[0]), *args[1:], **kwargs)


@_named("__lt__ __le__ __gt__ __ge__ __eq__ __ne__ lt le gt ge eq ne")
def _compared(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    with torch.no_grad(), world.agreeing():
        values = [reduced(world, one) if isinstance(one, Summand) else one for one in args]
        return func(*values, **kwargs)


@_named("sum mean view reshape squeeze unsqueeze flatten permute transpose t expand select narrow")
def _linear(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    if not isinstance(args[0], Summand) or kwargs.get("dtype") is not None:
        return GATHER
    local = func(*args, **kwargs)
    return summand(local, Cell(local.detach(), args[0]._cell.divisor))


@_named("grad.__get__ register_hook requires_grad_ requires_grad.__set__ retain_grad")
def _of_this_term(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    # All terms of a sum have the same gradient, that of the sum.
    result = func(*args, **kwargs)
    return args[0] if func.__name__ == "requires_grad_" else result


@_named("__getitem__")
def _getitem(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    tensor, index = args
    if not isinstance(tensor, Summand):
        return GATHER
    local = func(tensor, index)
    return summand(local, Cell(local.detach(), tensor._cell.divisor))


@_named("stack cat concat hstack vstack")
def _stacked(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    parts = args[0] if args else kwargs["tensors"]
    local = [
        exact_summand(world, part) if isinstance(part, Summand) else _share(world, part)
        for part in parts
    ]
    return summand(func(local, *args[1:], **kwargs))


@_named("zeros_like ones_like empty_like full_like rand_like randn_like")
def _like(world: World, func: Any, args: Args, kwargs: Kwargs) -> Any:
    return func(*args, **kwargs)


for _name in (
    "shape.__get__ size dim ndim.__get__ numel nelement dtype.__get__ device.__get__ "
    "requires_grad.__get__ is_leaf.__get__ grad_fn.__get__ is_floating_point is_complex "
    "is_cuda.__get__ layout.__get__ __len__ __hash__ _version.__get__ is_cpu.__get__ "
    "is_sparse.__get__ is_quantized.__get__ element_size is_contiguous "
    "is_meta.__get__ is_nested.__get__ is_mps.__get__ is_xpu.__get__"
).split():
    SUMS[_name] = lambda world, func, args, kwargs: func(*args, **kwargs)
