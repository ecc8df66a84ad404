"""Modules of torch's own, taken as one call.

A layer of ``torch.nn`` computes and does nothing else, so a tape may hold one call for it, or for
a whole ``nn.Sequential`` of such layers, instead of one for each operation inside. What the call
depends on beside its input (parameters, buffers, train or eval, settings, hooks) is looked at
again whenever any module has been changed since.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _module
from torch.nn.modules.lazy import LazyModuleMixin

_HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
)
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)
_TORCHS = "torch.nn.modules."
_OWN = (nn.Parameter, type(None))
_PLAIN = (int, float, str, bool, type(None), tuple)


class Changes:
    """Counts changes to layers; nobody looks at one again as long as the count stays."""

    def __init__(self) -> None:
        self.count = 0
        #: Told of a layer before it changes.
        self.on_change: Callable[[Any], None] = lambda module: None

    def of(self, module: nn.Module) -> None:
        """A layer is about to change; modules of the user's are never taken as one call."""
        if type(module).__module__.startswith(_TORCHS):
            self.count += 1
            self.on_change(module)


class PureCall:
    """A module of torch's own, as a call of a tape.

    Args:
        module: The module.
        original: How modules are called.
    """

    def __init__(self, module: nn.Module, original: Any) -> None:
        self._ref, self._original = weakref.ref(module), original
        self.__name__ = type(module).__name__
        self.tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
        #: Of all layers that it calls.
        self.ids = {id(one) for one in module.modules()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._original(self._ref(), *args, **kwargs)

    @property
    def module(self) -> nn.Module | None:
        """What it calls; None if that is gone."""
        return self._ref()

    def layers(self) -> list[nn.Module]:
        """All layers that it calls."""
        module = self._ref()
        return [] if module is None else [*module.modules()]


def has_layer(calls: Iterable[Any], module: Any) -> bool:
    """Whether one of some calls of a tape calls a layer."""
    key = id(module)
    return any(isinstance(call.func, PureCall) and key in call.func.ids for call in calls)


def is_pure(module: nn.Module) -> bool:
    """Whether a module and all that are in it are torch's own, and nobody listens to them."""
    if any(getattr(_module, name) for name in _GLOBAL_HOOKS):
        return False
    for one in module.modules():
        kind = type(one)
        if not kind.__module__.startswith(_TORCHS) or "forward" in vars(one):
            return False
        if isinstance(one, LazyModuleMixin) or any(getattr(one, name) for name in _HOOKS):
            return False
        if any(isinstance(value, Tensor) for value in vars(one).values()):
            return False  # in the place of a parameter, perhaps
        if any(type(own) not in _OWN for own in one._parameters.values()):
            return False
    return not any(tensor.is_sparse for tensor in module.parameters())


def _draws(module: nn.Module) -> bool:
    return any(getattr(one, "p", 0) or getattr(one, "dropout", 0) for one in module.modules())


def _state_of(module: nn.Module) -> str:
    """All that a call depends on beside numbers, as a text that is the same if it is the same."""
    found: list[Any] = []
    for one in module.modules():
        own = vars(one)
        found.append(id(one))
        found.append([(name, value) for name, value in own.items() if isinstance(value, _PLAIN)])
        found.append([id(tensor) for tensor in one._parameters.values()])
        found.append([id(tensor) for tensor in one._buffers.values()])
        found.append([len(own[name]) for name in _HOOKS])
    return repr(found)


def listen(changes: Changes) -> list[tuple[Any, str, Any]]:
    """What to replace in ``nn.Module`` so that changes are counted: owner, name, replacement."""

    def counting(original: Any) -> Any:
        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            changes.of(self)
            return original(self, *args, **kwargs)

        return changed

    def setting(original: Any) -> Any:
        def __setattr__(self: Any, name: str, value: Any) -> None:
            if vars(self).get(name, changes) is not value:
                changes.of(self)
            original(self, name, value)

        return __setattr__

    names = (
        "__delattr__ register_forward_hook register_forward_pre_hook "
        "register_full_backward_hook register_full_backward_pre_hook register_parameter "
        "register_module add_module register_buffer _apply"
    ).split()
    found = [(nn.Module, name, counting(vars(nn.Module)[name])) for name in names]
    found.append((nn.Module, "__setattr__", setting(vars(nn.Module)["__setattr__"])))
    found.append((nn.Sequential, "insert", counting(vars(nn.Sequential)["insert"])))
    return found


class PureCalls:
    """Knows the calls of modules: one for each state that a module has been in.

    Args:
        original: How modules are called.
        draws: Whether modules may draw random numbers inside of their calls.
    """

    def __init__(self, original: Any, *, draws: bool = True) -> None:
        self.changes = Changes()
        #: How many calls are under way in which layers have other tensors than their own.
        self.num_exchanges = 0
        self._original, self._draws = original, draws
        #: By the id of a module: when it was looked at, its call then, its calls in all states,
        #: and a reference that takes all that out again when the module is gone.
        self.known: dict[int, tuple[int, PureCall | None, dict[str, PureCall], Any]] = {}

    def of(self, module: nn.Module) -> PureCall | None:
        """The call of a module; None if it is to be called as it is."""
        if self.num_exchanges:
            return None
        key = id(module)
        known = self.known.get(key)
        if known is not None and known[0] == self.changes.count:
            return known[1]
        if known is None:
            calls: dict[str, PureCall] = {}
            ref = weakref.ref(module, lambda _: self.known.pop(key, None))
        else:
            _, _, calls, ref = known
        call = None
        with torch._C.DisableTorchFunction():  # nobody is to see that we look
            if is_pure(module) and (self._draws or not _draws(module)):
                state = _state_of(module)
                call = calls.get(state)
                if call is None:
                    call = calls[state] = PureCall(module, self._original)
        self.known[key] = (self.changes.count, call, calls, ref)
        return call
