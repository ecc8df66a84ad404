"""Who looks at parameters from outside of a training step: replicas are made equal for them.

eval(), state_dict(), torch.save    settle before
a call in training                  resume before
load_state_dict()                   settle before, take what was loaded afterwards
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import nn

from reparto.runtime._patches import Current, replace, seen_call
from reparto.runtime._tensors import number


def install(current: Current) -> None:
    """Wrap what looks at parameters from outside of a training step; replicas may be apart."""
    replace(nn.Module, "__call__", lambda o: _resuming_call(current, seen_call(current, o)))
    replace(nn.Module, "train", lambda o: _settles_in_eval(current, o))
    replace(nn.Module, "state_dict", lambda o: _settles(current, o))
    replace(torch.optim.Optimizer, "state_dict", lambda o: _settles(current, _gathers(current, o)))
    replace(torch, "save", lambda o: _settles(current, o))
    replace(nn.Module, "load_state_dict", lambda o: _reloads(current, o))
    replace(torch.amp.GradScaler, "_maybe_opt_step", lambda o: _maybe_step(current, o))


def _settles(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def settled(*args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is not None and not world.gradients.quiet:
            world.settle()
        return original(*args, **kwargs)

    return settled


def _gathers(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def state_dict(self: Any) -> Any:
        world = current()
        if world is not None and not world.gradients.quiet and self in world.gradients:
            with world.gradients.unseen():
                world.strategy.gather_state(world.gradients.owner_of(self))
        return original(self)

    return state_dict


def _resuming_call(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is not None and world.settled and _trains(self):
            world.resume()
        return original(self, *args, **kwargs)

    return __call__


def _trains(module: nn.Module) -> bool:
    has_parameters = next(module.parameters(), None) is not None  # a loss tells nothing
    return module.training and has_parameters and torch.is_grad_enabled()


def _reloads(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def load_state_dict(self: Any, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is None or world.gradients.quiet:
            return original(self, *args, **kwargs)
        world.settle()
        result = original(self, *args, **kwargs)
        looks = world.strategy.apart or world.strategy.shows
        if looks and world.num_steps and world.gradients.own_any(self.parameters()):
            with world.gradients.unseen(), torch.no_grad():
                world.strategy.reload()
        return result

    return load_state_dict


def _maybe_step(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def _maybe_opt_step(self: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        world = current()
        if world is not None and world.apart:  # all skip a step, or none
            for found in state["found_inf_per_device"].values():
                found.fill_(float(world.agree_on(number(found)) > 0))
        return original(self, optimizer, state, *args, **kwargs)

    return _maybe_opt_step


def _settles_in_eval(current: Current, original: Any) -> Any:
    @functools.wraps(original)
    def train(self: Any, mode: bool = True) -> Any:
        world = current()
        if not mode and world is not None:
            world.settle()
        return original(self, mode)

    return train
