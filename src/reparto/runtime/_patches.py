"""What of torch is wrapped while a run lasts, and how it is put back.

Only what a script can reach and what must know about workers: module calls (regions), backward
passes, reads of ``.grad``, zeroing, optimizer steps, factories that are handed a batch size.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.autograd.variable import VariableMeta

from reparto.runtime import _backward, _functions, _legacy, _regions
from reparto.runtime._compiler import put_off
from reparto.runtime._factories import made
from reparto.runtime._layout import BatchInt
from reparto.runtime._norm import batch_norm, plain_batch_norm
from reparto.runtime._tensors import (
    Tracked,
    mapped,
    whole,
)

if TYPE_CHECKING:
    from reparto.runtime._world import World

_undo: list[Callable[[], None]] = []
_replaced: list[tuple[Any, str]] = []
_last: list[Callable[[], None]] = []  # undone after all that
Current = Callable[[], "World | None"]


def replace(owner: Any, name: str, made: Callable[[Any], Any]) -> None:
    had = name in vars(owner) if isinstance(owner, type) else True
    original = getattr(owner, name)
    kept = vars(owner).get(name, original)  # a static method stays one
    setattr(owner, name, made(original))

    def undo() -> None:
        setattr(owner, name, kept) if had else delattr(owner, name)

    _undo.append(undo)
    _replaced.append((owner, name))


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Put everything back for a while: torch itself is about to look at it."""
    ours = [vars(owner).get(name, getattr(owner, name)) for owner, name in _replaced]
    for undo in reversed(_undo):
        undo()
    try:
        yield
    finally:
        for (owner, name), value in zip(_replaced, ours, strict=True):
            setattr(owner, name, value)


def install(current: Current, tracking: bool) -> None:
    """Wrap what must know about workers.

    Args:
        current: Tells the world of the calling thread.
        tracking: Whether there is more than one worker; with one only steps and reads count.
    """
    optimizer = torch.optim.Optimizer
    _last.append(put_off(suspended))
    replace(optimizer, "profile_hook_step", lambda o: staticmethod(_steps(current, o)))
    for kind in _subclasses(optimizer):
        step = vars(kind).get("step")
        if getattr(step, "hooked", False) and not hasattr(step, "_reparto"):
            replace(kind, "step", _steps(current, lambda o: o))  # one was made before
            kind.step.hooked = True
    replace(optimizer, "add_param_group", lambda o: _add_group(current, o))
    loading = torch.utils.data.dataloader._BaseDataLoaderIter
    replace(loading, "__next__", lambda o: _next(current, o))
    if not tracking:
        return
    install_gradients(current)
    replace(nn.Module, "__call__", lambda o: _module_call(current, o))
    replace(nn.Module, "__setattr__", lambda o: _set_attribute(current, o))
    for name in _HOOKING:
        replace(nn.Module, name, lambda o: _hooked(current, o))
    replace(torch, "compile", lambda o: _compile(current))
    replace(nn.Module, "compile", lambda o: _compile_module(current))
    replace(F, "batch_norm", lambda o: _batch_norm(current))
    replace(F, "l1_loss", _l1_loss)
    replace(torch.autograd.Function, "apply", lambda o: classmethod(_apply(current, o.__func__)))
    replace(torch.utils.checkpoint, "checkpoint", lambda o: _checkpoint(current, o))
    for module in (torch, torch.random):
        replace(module, "get_rng_state", lambda o: _get_random_state(current, o))
        replace(module, "set_rng_state", lambda o: _set_random_state(current, o))
    for kind in (torch._C.ScriptFunction, torch._C.ScriptMethod):
        replace(kind, "__call__", lambda o: _wholly(current, o, "compiled code sees memory alone"))
    for name in ("zeros", "ones", "empty", "full", "rand", "randn", "randint", "normal"):
        replace(torch, name, lambda o: _factory(current, o))
    for name in ("tensor", "as_tensor", "asarray"):
        replace(torch, name, lambda o: _copying(current, o))
    replace(VariableMeta, "__call__", lambda o: _variable(o))
    replace(torch.jit, "trace", lambda o: _wholly(current, o, "a traced call is made once"))
    replace(torch, "vmap", lambda o: _transform(current, o))
    for name in ("vmap", "grad", "grad_and_value", "jacrev", "jacfwd", "hessian"):
        replace(torch.func, name, lambda o: _transform(current, o))
    for name in _legacy.NAMES:
        replace(torch, name, _legacy.standing_for)
    replace(torch, "set_default_tensor_type", _legacy.set_default_type)
    replace(Tensor, "__new__", _legacy.new_tensor)
    for name in ("arange", "eye", "linspace", "randperm"):
        replace(torch, name, lambda o: _counting_factory(current, o))
    replace(nn.Parameter, "__new__", lambda o: staticmethod(_parameter(current, o)))


def install_recording(current: Current) -> None:
    """Wrap what ``verify`` listens to, also with one worker."""
    install_gradients(current)
    for name in ("item", "__float__", "__int__", "__bool__", "tolist"):
        replace(Tensor, name, lambda o: _read(current, o))
    replace(nn.Module, "__call__", lambda o: seen_call(current, o))


def install_losses(current: Current) -> None:
    """Wrap what tells the loss of a step.

    Alone, a worker that is compared with others shall not take longer than it has to: gradients
    are then left alone.
    """
    if not isinstance(vars(Tensor).get("grad"), property):
        replace(torch.amp.GradScaler, "scale", lambda o: _scale(current, o))
        replace(torch.autograd, "backward", lambda o: _backward.lone_backward(current, o))


def install_gradients(current: Current) -> None:
    """Wrap backward passes and whatever reads or zeroes gradients; once."""
    if isinstance(vars(Tensor).get("grad"), property):
        return
    replace(torch.amp.GradScaler, "scale", lambda o: _scale(current, o))
    replace(Tensor, "grad", lambda o: property(*_backward.grad_attribute(current)))
    replace(Tensor, "backward", lambda o: _backward.backward(current, o))
    replace(Tensor, "register_hook", lambda o: _backward.register_hook(current, o))
    arrival = "register_post_accumulate_grad_hook"
    replace(Tensor, arrival, lambda o: _backward.register_arrival_hook(current, o))
    replace(torch.autograd, "backward", lambda o: _backward.autograd_backward(current, o))
    replace(torch.autograd, "grad", lambda o: _backward.autograd_grad(current, o))
    replace(torch.optim.Optimizer, "zero_grad", lambda o: _zero_grad(current, o, _of_optimizer))
    replace(nn.Module, "zero_grad", lambda o: _zero_grad(current, o, _of_module))


def uninstall() -> None:
    """Put everything back."""
    while _undo:
        _undo.pop()()
    _replaced.clear()
    while _last:
        _last.pop()()


# Optimizers.


def _steps(current: Current, original: Any) -> Any:
    def profile_hook_step(func: Any) -> Any:
        hooked = original(func)

        @functools.wraps(func)
        def step(self: Any, *args: Any, **kwargs: Any) -> Any:
            world = current()
            if world is None or world.in_step:
                return hooked(self, *args, **kwargs)
            return world.optimizer_step(self, hooked, args, kwargs)

        step._reparto = True  # type: ignore[attr-defined]
        return step

    return profile_hook_step


def _subclasses(kind: Any) -> Iterator[Any]:
    for one in kind.__subclasses__():
        yield one
        yield from _subclasses(one)


def _add_group(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def add_param_group(self: Any, param_group: Any) -> None:
        original(self, param_group)
        world = current()
        if world is not None:
            world.gradients.adopt(self, self.param_groups[-1]["params"])
            if world.accelerator is not None:
                world.accelerator.adopt(self.param_groups[-1]["params"])

    return add_param_group


def _of_optimizer(optimizer: Any) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _of_module(module: nn.Module) -> list[Tensor]:
    return list(module.parameters())


def _zero_grad(current: Current, original: Any, tensors_of: Any) -> Any:
    @functools.wraps(original)
    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is None:
            return original(self, *args, **kwargs)
        with world.gradients.unseen():
            result = original(self, *args, **kwargs)
        world.gradients.zeroed(tensors_of(self))
        return result

    return zero_grad


def _scale(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def scale(self: Any, outputs: Any) -> Any:
        scaled = original(self, outputs)
        world = current()
        if world is not None and self.is_enabled():
            world.scaled_by = float(self.get_scale())
        return scaled

    return scale


# Modules and factories.


def _module_call(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is None or world.regions.active is not None:
            return original(self, *args, **kwargs)
        return _regions.call(world, self, original, args, kwargs)

    return __call__


_HOOKING = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
)


def _hooked(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def register(self: nn.Module, hook: Any, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is not None:
            world.regions.forget()
            if "backward" in original.__name__:
                world.has_hooks = True
                hook = _regions.on_global_gradients(world, self, hook)
        return original(self, hook, *args, **kwargs)

    return register


def _set_attribute(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def __setattr__(self: nn.Module, name: str, value: Any) -> None:
        world = current()
        if world is not None and not world.regions.depth and name != "training":
            before = vars(self).get(name)
            if isinstance(value, (int, float, str, type(None))) and before != value:
                world.regions.forget(self)  # a switch was thrown from outside
        original(self, name, value)

    return __setattr__


def _batch_norm(current: Current) -> Any:
    @functools.wraps(plain_batch_norm)
    def wrapper(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is not None and world.regions.active is not None:
            return batch_norm(world, world.region_place(input), input, *args, **kwargs)
        if world is not None and not isinstance(input, Tracked):
            world.impure("normalises something else than the batch")
        return plain_batch_norm(input, *args, **kwargs)

    return wrapper


def _apply(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is None or not _functions.concerns(world, cls, args):
            return original(cls, *args, **kwargs)
        return _functions.applied(world, cls, original, args, kwargs)

    return apply


def _checkpoint(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def checkpoint(function: Any, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is not None and world.regions.active is None:
            world.impure("is computed once more in the backward pass, outside of any region")
            function = _regions.without_regions(world, function)
        return original(function, *args, **kwargs)

    return checkpoint


def _wholly(current: Current, original: Any, why: str) -> Any:
    """A function that is given whole tensors, on every worker."""

    @functools.wraps(original)
    def on_whole(*args: Any, **kwargs: Any) -> Any:
        if (world := current()) is not None:
            args, kwargs = mapped((args, kwargs), lambda one: whole(world, one, why))
        return original(*args, **kwargs)

    return on_whole


def _transform(current: Current, original: Any) -> Any:
    """A transform of ``torch.func``: what it makes sees whole tensors, on every worker."""

    @functools.wraps(original)
    def transform(*args: Any, **kwargs: Any) -> Any:
        why = "a transform of torch.func sees the whole batch"
        return _wholly(current, original(*args, **kwargs), why)

    return transform


def _get_random_state(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def get_rng_state() -> Tensor:
        state: Tensor = original()
        world = current()
        if world is not None:  # whoever goes back to this state goes back to both
            state._reparto_own = dict(world.draws.states)  # type: ignore[attr-defined]
        return state

    return get_rng_state


def _set_random_state(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def set_rng_state(new_state: Tensor) -> None:
        original(new_state)
        world = current()
        if world is not None and hasattr(new_state, "_reparto_own"):
            world.draws.states = dict(new_state._reparto_own)

    return set_rng_state


def _l1_loss(original: Any) -> Any:
    """Torch forgets the weight when it asks a tensor how to compute this loss."""

    @functools.wraps(original)
    def l1_loss(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
        weight = kwargs.get("weight")
        if weight is None or not any(isinstance(t, Tracked) for t in (input, target, weight)):
            return original(input, target, *args, **kwargs)
        errors = (input - target).abs() * weight
        reduction = kwargs.get("reduction", "mean")
        if reduction == "none":
            return errors
        return errors.sum() / weight.sum() if reduction == "mean" else errors.sum()

    return l1_loss


def _factory(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is None or world.regions.active is not None:
            return original(*args, **kwargs)
        return made(world, original, args, kwargs)

    return make


def _counting_factory(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is not None and any(isinstance(one, BatchInt) for one in args):
            world.impure("counts the rows of the batch")
        return original(*args, **kwargs)

    return make


def _parameter(current: Current, original: Any) -> Any:
    def __new__(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if isinstance(data, Tracked) and world is not None:
            data = whole(world, data.detach())  # parameters are replicated
        return original(cls, data, *args, **kwargs)

    return __new__


def _copying(current: Current, original: Any) -> Any:
    """``torch.tensor`` and its like copy memory without asking the tensor what it is."""

    @functools.wraps(original)
    def make(data: Any, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is None or world.regions.active is not None:
            return original(data, *args, **kwargs)
        if not isinstance(data, Tracked):
            data = mapped(data, lambda part: whole(world, part)) if _is_list(data) else data
            return original(data, *args, **kwargs)
        requires_grad = kwargs.pop("requires_grad", False)
        kwargs.pop("copy", None)
        made = data.detach().clone() if original.__name__ == "tensor" else data
        made = made.to(*args, **kwargs) if args or kwargs else made
        return made.requires_grad_() if requires_grad else made

    return make


def _is_list(data: Any) -> bool:
    return isinstance(data, (list, tuple)) and len(data) < 100_000


def _variable(original: Any) -> Any:
    def __call__(cls: Any, data: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(data, Tracked):
            wants_grad = kwargs.get("requires_grad", args[0] if args else False)
            return data.requires_grad_() if wants_grad else data
        return original(cls, data, *args, **kwargs)

    return __call__


# A compiled module hides its operations from the rules, and its tracer would trace ours.

_NOT_COMPILED = "torch.compile is left out: shared-out models run eagerly"


def _compile(current: Current) -> Any:
    def compile(model: Any = None, **settings: Any) -> Any:
        world = current()
        if world is not None:
            world.note(_NOT_COMPILED)
        return (lambda function: function) if model is None else model

    return compile


def _compile_module(current: Current) -> Any:
    def compile(self: nn.Module, *args: Any, **settings: Any) -> None:
        world = current()
        if world is not None:
            world.note(_NOT_COMPILED)

    return compile


# Listening.


def _next(current: Current, original: Any) -> Any:
    def __next__(self: Any) -> Any:
        world = current()
        if world is None:
            return original(self)
        with world.gradients.unseen():  # which rows are loaded here is our business
            batch = original(self)
        if world.size == 1:
            world.saw_batch(batch)
        return batch

    return __next__


#: Who reads numbers that the script does not ask for: samplers of loaders read ahead, and how far
#: is our business; a tensor that is printed looks how wide its columns must be.
NOT_THE_SCRIPT = ("reparto.", "torch.utils.data.", "torch._tensor_str")


def _name(frame: FrameType | None) -> str:
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def _is_the_scripts(frame: FrameType | None, world: World) -> bool:
    """Whether it is the script that reads.

    A tensor reads itself to be formatted. A tracked one is asked to by us, on the script's behalf;
    under acceleration so is every one, and the engine tells of it.
    """
    formats = _name(frame) == "torch._tensor"
    while _name(frame) == "torch._tensor":
        assert frame is not None
        frame = frame.f_back
    reader = _name(frame)
    if formats and world.accelerator is None and not reader.startswith("torch."):
        return True
    return not reader.startswith(NOT_THE_SCRIPT)


def _read(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def read(self: Tensor, *args: Any) -> Any:
        world = current()
        if world is None or world.is_reading or not _is_the_scripts(sys._getframe(1), world):
            return original(self, *args)
        world.is_reading = True  # a tracked tensor comes here again with its global value
        try:
            value = original(self, *args)
        finally:
            world.is_reading = False
        world.recorded_value(value)
        return value

    return read


def seen_call(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is None:
            return original(self, *args, **kwargs)
        world.saw_module(self)
        world.module_depth += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            world.module_depth -= 1

    return __call__
