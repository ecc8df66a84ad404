"""``torch.autograd.Function``: operations whose backward pass the script has written itself.

torch calls both passes without asking its arguments how they are shared out. So a twin of the
class stands in for it, and translates at the edges::

    apply(Shard, w) ─► forward(Shard, w) ──── the script's own, on tracked tensors ────► Shard
                                                                                           ⋮
    slice, term of a sum ◄── backward(Shard) ── the script's own, on tracked tensors ◄── slice
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime._collective import sum_all
from reparto.runtime._layout import Placement
from reparto.runtime._tensors import (
    Shard,
    Summand,
    Tracked,
    exact_summand,
    plain,
    shard,
    sliced,
    summand,
    whole,
)

if TYPE_CHECKING:
    from reparto.runtime._world import World

_twins: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()
_calls = threading.local()
_no_dispatch = torch._C.DisableTorchFunctionSubclass


def concerns(world: World, function: Any, args: Any) -> bool:
    """Whether a call has to be translated."""
    if any(isinstance(one, Tracked) for one in args):
        return True
    if world.regions.active is not None or function.__module__.startswith(("torch.", "reparto.")):
        return False
    # Of parameters too: a pass that is not linear (it clips) has to see the global gradient.
    return any(isinstance(one, Tensor) and one.requires_grad for one in args)


def applied(world: World, function: Any, apply: Any, args: Any, kwargs: Any) -> Any:
    """Call a function of the script's own."""
    world.has_hooks = True  # its backward pass is code of the script's
    world.impure("has a backward pass of its own")
    if function not in _twins:
        _twins[function] = _twin(function)
    call = _Call(world, args)
    stack = _calls.__dict__.setdefault("stack", [])
    stack.append(call)
    try:
        result = apply(_twins[function], *args, **kwargs)
    finally:
        stack.pop()
    if isinstance(result, tuple):
        return tuple(_marked(one, how) for one, how in zip(result, call.outputs, strict=True))
    return _marked(result, call.outputs[0])


class _Call:
    """How the arguments and results of one call are shared out."""

    def __init__(self, world: World, args: Any) -> None:
        self.world = world
        self.inputs = [_how(one) for one in args]
        self.outputs: list[Any] = []
        self.saved: list[Any] = []

    def made(self, result: Any) -> Any:
        """The forward pass has given this."""
        self.outputs = [_how(one) for one in (result if isinstance(result, tuple) else (result,))]
        return result

    def taken(self, grads: Any) -> list[Any]:
        """Gradients of the results, as the script's backward pass has to see them."""
        return [
            grad if grad is None else self._taken(grad, how)
            for grad, how in zip(grads, self.outputs, strict=True)
        ]

    def _taken(self, grad: Tensor, how: Any) -> Tensor:
        if isinstance(how, Placement):
            return shard(grad, how)
        # Each worker has its own term of a replicated result's gradient; a sum's terms have
        # one gradient in common.
        return grad if how is Summand else sum_all(grad, self.world.data)

    def given(self, grads: Any) -> tuple[Any, ...]:
        """Gradients of the arguments, as torch has to see them on this worker."""
        grads = grads if isinstance(grads, tuple) else (grads,)
        return tuple(
            self._given(grad, how)
            for grad, how in zip(grads, [*self.inputs, *[None] * len(grads)], strict=False)
        )

    def _given(self, grad: Any, how: Any) -> Any:
        if not isinstance(grad, Tensor):
            return grad
        if isinstance(how, Placement):
            if isinstance(grad, Shard) and grad._place == how:
                return plain(grad)
            return sliced(self.world, whole(self.world, grad), how)
        if how is Summand:
            return whole(self.world, grad)
        if isinstance(grad, Summand):
            with _no_dispatch():
                return exact_summand(self.world, grad)
        return whole(self.world, grad) / self.world.size


def _how(value: Any) -> Any:
    if isinstance(value, Shard):
        return value._place
    return Summand if isinstance(value, Summand) else None


def _marked(value: Any, how: Any) -> Any:
    """Mark a tensor again that torch has handed over as a plain one."""
    if isinstance(value, Tracked) or not isinstance(value, Tensor) or how is None:
        return value
    return shard(value, how) if isinstance(how, Placement) else summand(value)


class _Context:
    """What the script's passes know as ``ctx``; what was saved comes back as it went."""

    def __init__(self, ctx: Any, call: _Call) -> None:
        self.__dict__["_ctx"], self.__dict__["_call"] = ctx, call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ctx, name, value)

    def save_for_backward(self, *tensors: Any) -> None:
        """Save; results lose their class on the way."""
        self._call.saved = [_how(one) for one in tensors]
        self._ctx.save_for_backward(*tensors)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved."""
        pairs = zip(self._ctx.saved_tensors, self._call.saved, strict=True)
        return tuple(_marked(one, how) for one, how in pairs)


def _twin(function: Any) -> type:
    def forward(ctx: Any, *args: Any) -> Any:
        ctx._reparto_call = call = _calls.stack[-1]
        return call.made(function.forward(_Context(ctx, call), *args))

    def forward_alone(*args: Any) -> Any:
        return _calls.stack[-1].made(function.forward(*args))

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx._reparto_call = call = _calls.stack[-1]
        function.setup_context(_Context(ctx, call), inputs, output)

    def backward(ctx: Any, *grads: Any) -> Any:
        call: _Call = ctx._reparto_call
        return call.given(function.backward(_Context(ctx, call), *call.taken(grads)))

    body: dict[str, Any] = {"backward": staticmethod(backward)}
    base = torch.autograd.function._SingleLevelFunction.setup_context
    if function.setup_context is base:
        body["forward"] = staticmethod(forward)
    else:
        body["forward"] = staticmethod(forward_alone)
        body["setup_context"] = staticmethod(setup_context)
    return type(function.__name__, (function,), body)
