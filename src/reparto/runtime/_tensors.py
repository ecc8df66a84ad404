"""Tensors that know how they are shared out.

    plain torch.Tensor   replicated: the same on every worker
    Shard                this worker's slice; *presents* the global shape
    Summand              this worker's term of a sum, a loss for instance

Every worker runs the whole script. What the script does to a Shard or a Summand arrives here
(``__torch_function__``) and is looked up in the table of rules: a rule runs the operation on the
slice and says how the result is shared out. An operation without a rule runs on the gathered,
global tensor and gives a replicated result. So the result is always the sequential one; rules
only decide what is computed by one worker and what by all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.errors import DisagreementError
from reparto.runtime._collective import gather, gathered, sum_all, summed
from reparto.runtime._estimates import Estimate
from reparto.runtime._layout import Placement, effective, take
from reparto.runtime._mirrors import Mirror, reflect, remember, wrote

if TYPE_CHECKING:
    from reparto.runtime._world import World

Rule = Callable[["World", Any, tuple[Any, ...], dict[str, Any]], Any]

#: What a rule returns when it cannot handle this call; the call then runs on gathered tensors.
GATHER = object()

#: Rules by function; filled by ``_rules``, and by name on first use.
RULES: dict[Any, Rule] = {}

#: Rules for functions with a Summand (and no Shard) among their arguments.
SUM_RULES: dict[Any, Rule] = {}

#: What helps when a region was none.
NO_REGIONS = "set REPARTO_REGIONS=0 to have every operation looked at, at some cost in speed"

in_transform = torch._C._functorch.peek_interpreter_stack  # of torch.func: None outside
_no_dispatch = torch._C.DisableTorchFunctionSubclass
_resolve: list[Callable[[Any], tuple[Rule, Rule]]] = []
_current: list[Callable[[], World | None]] = []


def number(tensor: Tensor) -> float:
    """The value of a plain one-element tensor, read without telling ``verify``."""
    return float(torch._C.TensorBase.item(tensor))


class Tracked(Tensor):
    """Base of the tensors that know how they are shared out."""

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        world = _current[0]()
        kwargs = kwargs or {}
        if world is None:
            with _no_dispatch():
                return func(*args, **kwargs)
        return dispatch(world, func, args, kwargs)


class Shard(Tracked):
    """This worker's slice of a global tensor.

    Attributes:
        _place: How it is shared out.
        _site: Where in the script it was cut.
        _data: The replicated tensor that it was cut from, and is a view of.
        _cut: The Shard that was cut, of which it is a view.
        _mirror: The gathered copy behind views that the script has taken of single rows.
    """

    _place: Placement
    _site: Any = None
    _data: Tensor | None = None
    _cut: Shard | None = None
    _mirror: Mirror | None = None


class Summand(Tracked):
    """This worker's term of a sum over workers."""

    _cell: Cell
    _scale: float = 1.0


class Divisor:
    """How many items a mean was divided by, when that depends on every worker's data.

    A mean over unmasked targets is computed as if none were masked (``nominal``), and set right
    when the workers' true counts are known: they travel with the gradients, so the usual case,
    nothing masked, costs no message of its own.
    """

    def __init__(self, local: Tensor, nominal: float) -> None:
        self.local = local
        self.nominal = nominal
        self.factor: float | None = None
        self.is_zero = False

    def resolve(self, world: World) -> float:
        """Nominal over true divisor; asks the other workers if it is not known yet."""
        if self.factor is None:
            count = self.local.detach().double().reshape(1).clone()
            self.settle(number(world.data.sum(count)))
        return self.factor  # type: ignore[return-value]

    def estimate(self, world: World) -> float:
        """The same factor as far as this worker can tell; replicas are apart."""
        count = number(self.local.detach().double().reshape(1)) / world.share
        return self.nominal / count if count else 1.0

    def settle(self, total: float) -> None:
        """Take the sum of the workers' true counts."""
        # A mean of nothing is no number, but its gradient is zero: torch skips what is masked.
        self.is_zero = not total
        self.factor = self.nominal / total if total else 1.0

    def corrected(self, value: Tensor) -> Tensor:
        """A mean over the nominal divisor, set right."""
        assert self.factor is not None
        if self.is_zero:
            return value + torch.nan
        return value if self.factor == 1.0 else value * self.factor


class Cell:
    """The value behind one or more Summands: known locally, and globally once it was reduced."""

    def __init__(self, local: Tensor, divisor: Divisor | None = None) -> None:
        self.local = local
        self.divisor = divisor
        self.total: Tensor | None = None
        self.estimate: Tensor | None = None

    def settle(self, total: Tensor) -> None:
        """Take the sum over workers, before the divisor's correction."""
        self.total = self.divisor.corrected(total) if self.divisor else total

    def value(self, world: World) -> Tensor:
        """The global value, without gradient; asks the other workers if it is not known yet."""
        if self.total is None:
            world.impure("a sum over the batch is read")
            if world.apart:
                factor = self.divisor.estimate(world) if self.divisor else 1.0
                self.estimate = self.local * (factor / world.share)
                return self.estimate
            if self.divisor:
                self.divisor.resolve(world)
            self.settle(summed(self.local, world.data))
        return self.total  # type: ignore[return-value]


def dispatch(world: World, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one operation that has tracked tensors among its arguments."""
    if world.regions.active is not None:
        return _within_region(world, func, args, kwargs)
    if in_transform() is not None:
        why = "a transform of torch.func sees the whole batch"
        args, kwargs = mapped((args, kwargs), lambda one: whole(world, one, why).detach())
        return func(*args, **kwargs)
    if world.mirrors:
        reflect(world)
    has_shard, has_summand = _census(args)
    if kwargs:
        more = _census(kwargs.values())
        has_shard, has_summand = has_shard or more[0], has_summand or more[1]
    rules = RULES if has_shard else SUM_RULES
    rule = rules.get(func)
    if rule is None:
        RULES[func], SUM_RULES[func] = _resolve[0](func)
        rule = rules[func]
    if has_shard and has_summand:
        if isinstance(args[0], Summand) and _writes(func.__name__):
            return on_whole(world, func, args, kwargs)
        # A sum over the batch meets rows of the batch: it enters as its global value.
        args, kwargs = mapped((args, kwargs), lambda one: _settled(world, one))
    with _no_dispatch():
        try:
            result = rule(world, func, args, kwargs)
        except IndexError:
            if args:
                raise
            result = GATHER  # all arguments have names, and the rule knows positions
    return on_whole(world, func, args, kwargs) if result is GATHER else result


def _within_region(world: World, func: Any, args: Any, kwargs: Any) -> Any:
    """A Shard has come into a region by another way than as an argument; there all is local."""
    split = world.regions.active.split  # type: ignore[union-attr]

    def opened(one: Tensor) -> Tensor:
        if not isinstance(one, Shard) or one._place.split != split:
            raise DisagreementError(
                "a module that looks at each sample on its own met a tensor of another batch",
                remedy=NO_REGIONS,
            )
        return plain(one)

    args, kwargs = mapped((args, kwargs), opened)
    return func(*args, **kwargs)


def _census(values: Any) -> tuple[bool, bool]:
    """Whether there are Shards among some values, and whether there are Summands."""
    has_shard = has_summand = False
    for value in values:
        kind = type(value)
        if kind is Shard:
            has_shard = True
        elif kind is Summand:
            has_summand = True
        elif kind in (list, tuple, dict):
            more = _census(value.values() if kind is dict else value)
            has_shard, has_summand = has_shard or more[0], has_summand or more[1]
    return has_shard, has_summand


def _settled(world: World, tensor: Tensor) -> Tensor:
    with _no_dispatch():
        return reduced(world, tensor) if isinstance(tensor, Summand) else tensor


# Making tracked tensors and leaving them again.


def shard(local: Tensor, place: Placement, site: Any = None) -> Shard:
    """Mark a plain local tensor as this worker's slice."""
    made = local.as_subclass(Shard)
    made._place = place
    if site is not None:
        made._site = site
    return made


def summand(local: Tensor, cell: Cell | None = None, scale: float = 1.0) -> Summand:
    """Mark a plain local tensor as this worker's term of a sum."""
    made = local.as_subclass(Summand)
    made._cell = cell or Cell(local.detach())
    made._scale = scale
    return made


def plain(tensor: Tensor) -> Tensor:
    """The local tensor behind a tracked one, connected to its graph."""
    with _no_dispatch():
        return tensor.as_subclass(Tensor)


def whole(world: World, tensor: Tensor, why: str = "gathered") -> Tensor:
    """The global, replicated tensor behind a tracked one, connected to its graph."""
    with _no_dispatch():
        if isinstance(tensor, Shard):
            world.impure(why)
            local, place = tensor.as_subclass(Tensor), tensor._place
            with_graph = local.requires_grad and torch.is_grad_enabled()
            if tensor._mirror is not None and tensor._mirror.is_current(tensor, with_graph):
                return tensor._mirror.whole
            if not with_graph and tensor._data is not None:
                return tensor._data
            if with_graph:
                return gather(local, place, world.data)
            return gathered(local, place, world.data)
        if isinstance(tensor, Summand):
            return reduced(world, tensor)
    return tensor


def reduced(world: World, tensor: Summand) -> Tensor:
    """The global value of a Summand as a replicated tensor, connected to its graph."""
    world.impure("a sum over the batch is used")
    local = tensor.as_subclass(Tensor)
    if not (local.requires_grad and torch.is_grad_enabled()):
        value = tensor._cell.value(world)
        if tensor._scale != 1.0:
            # In double precision: a mean of float32 then comes out as if it had been divided.
            wide = value.double() if value.is_floating_point() else value
            value = wide * tensor._scale
        return value.to(local.dtype) if value.dtype != local.dtype else value.clone()
    divisor = tensor._cell.divisor
    if world.apart:
        return local * ((divisor.estimate(world) if divisor else 1.0) / world.share)
    total: Tensor = sum_all(local, world.data)
    if divisor is None:
        return total
    divisor.resolve(world)
    return divisor.corrected(total)


def estimated(world: World, tensor: Summand) -> Estimate:
    """The number behind a Summand as this worker sees it; replicas are apart."""
    cell, scale = tensor._cell, tensor._scale
    value = number(cell.value(world)) * scale
    return Estimate(value, value * world.share, 0.0, world)


def exact_summand(world: World, tensor: Summand) -> Tensor:
    """The local term with its divisor set right, so that it may be combined with others."""
    local = tensor.as_subclass(Tensor)
    divisor = tensor._cell.divisor
    if divisor is None:
        return local
    if world.apart:
        return local * divisor.estimate(world)
    divisor.resolve(world)
    return divisor.corrected(local)


def sliced(world: World, tensor: Tensor, place: Placement) -> Tensor:
    """This worker's slice of a replicated tensor."""
    world.impure("a replicated tensor is sliced with the batch")
    return take(tensor, place, world.rank)


def own_rows(world: World, tensor: Shard) -> Tensor:
    """The local tensor of a Shard without its ghost row."""
    return effective(tensor.as_subclass(Tensor), tensor._place, world.rank)


# The way out for operations without a rule.


def on_whole(world: World, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the gathered tensors, as every worker would have alone."""
    name = getattr(func, "__name__", str(func))
    if world.apart and not (torch.is_grad_enabled() and _learns(args)):
        with world.agreeing():  # a script may decide by the result
            return on_whole(world, func, args, kwargs)
    world.saw_gather(name)
    whole_args = mapped(args, lambda value: whole(world, value, f"{name} runs on the whole batch"))
    whole_kwargs = mapped(kwargs, lambda value: whole(world, value))
    result = func(*whole_args, **whole_kwargs)
    if not args:
        return result
    if _writes(name):
        return _written(world, args[0], whole_args[0], result)
    is_copy = isinstance(args[0], Shard) and not _is_view(whole_args[0], args[0])
    if is_copy and (name == "__iter__" or _is_view(result, whole_args[0])):
        remember(world, args[0], whole_args[0])
    return result


def _learns(values: Any) -> bool:
    return any(
        one.requires_grad if isinstance(one, Tensor) else _learns(one)
        for one in values
        if isinstance(one, (Tensor, list, tuple))
    )


def _writes(name: str) -> bool:
    if name in ("__setitem__", "__set__") or (name.startswith("__i") and name.endswith("__")):
        return name not in ("__init__", "__invert__", "__int__", "__index__", "__iter__")
    return name.endswith("_") and not name.endswith("__") and name not in ("requires_grad_",)


def _is_view(result: Any, base: Tensor) -> bool:
    if isinstance(result, (tuple, list)):
        return any(_is_view(part, base) for part in result)
    if not isinstance(result, Tensor) or result.layout != torch.strided:
        return False
    with _no_dispatch():
        return bool(result.untyped_storage()._cdata == base.untyped_storage()._cdata)


def _written(world: World, target: Any, source: Any, result: Any) -> Any:
    """Carry over what an operation wrote into the gathered copy of its first argument."""
    if isinstance(target, (list, tuple)):  # torch._foreach_*
        for one, its_source in zip(target, source, strict=True):
            _written(world, one, its_source, None)
        return result
    if isinstance(target, Shard):
        with _no_dispatch():
            target.copy_(take(source, target._place, world.rank))
            wrote(world, target)
    elif isinstance(target, Summand):
        local = source / world.size
        with _no_dispatch():
            target.copy_(local)
        target._cell = Cell(local.detach())
        target._scale = 1.0
    return target if isinstance(result, Tensor) else result


def mapped(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """Apply a function to the tracked tensors within nested lists, tuples and dictionaries."""
    if isinstance(value, Tracked):
        return change(value)
    kind = type(value)
    if kind is tuple or kind is list:
        return kind(mapped(part, change) for part in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(mapped(part, change) for part in value))
    if isinstance(value, dict):
        return {key: mapped(part, change) for key, part in value.items()}
    return value
