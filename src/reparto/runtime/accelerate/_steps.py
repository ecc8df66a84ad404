"""Steps of torch's optimizers, in one kernel and fit for a captured graph; settings stay.

What the optimizer needs for that (``fused``, ``capturable``, a learning rate that lies on the
device, so that schedulers may change it) is put into its groups for the time of the step only.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

#: Kinds that compute a step for all parameters in one kernel, on GPUs and CPUs.
FUSED: tuple[type, ...] = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD)
FUSED_ON_CPU: tuple[type, ...] = (*FUSED, torch.optim.Adagrad)
#: Kinds that count their steps on the device if they are told to.
CAPTURABLE: tuple[type, ...] = (
    torch.optim.Adadelta,
    torch.optim.Adamax,
    torch.optim.ASGD,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.Rprop,
)


def is_capturable(optimizer: torch.optim.Optimizer) -> str:
    """Why a step of this optimizer cannot be captured; empty where it can."""
    kind = type(optimizer)
    if kind not in FUSED and kind not in CAPTURABLE:
        return f"the step of {kind.__name__} cannot be captured"
    hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    if any(hooks):
        return f"{kind.__name__} has hooks on its step"
    for group in optimizer.param_groups:
        if group.get("differentiable"):
            return f"{kind.__name__} is differentiable"
        if isinstance(group.get("lr"), Tensor):
            return "the learning rate is a tensor"
        if any(param.is_sparse for param in group["params"]):
            return "parameters are sparse"
    return ""


def settings_of(optimizer: Any) -> tuple[Any, ...]:
    """What a captured step has fixed: all settings but the learning rate."""
    return tuple(
        (name, value)
        for group in optimizer.param_groups
        for name, value in group.items()
        if name not in ("params", "lr")
    )


class Insides:
    """What an optimizer holds, and whether it is still that.

    Args:
        optimizer: The optimizer, which has stepped before.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._groups, self._state = optimizer.param_groups, optimizer.state
        self._params = [group["params"] for group in self._groups]
        self._look()

    def _look(self) -> None:
        # Views of dicts show what is in them now, so that one pass over all sees any change.
        states = [state.values() for state in self._state.values()]
        self._parts: list[Any] = [self._groups, self._state.values(), *self._params, *states]
        self._sizes = list(map(len, self._parts))
        self._each = list(itertools.chain.from_iterable(self._parts))

    def are_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether the optimizer holds the same groups, parameters and state.

        `takes_lists_of` tells whether lists of parameters are the same; they are settings, too.
        """
        return (
            optimizer.param_groups is self._groups
            and optimizer.state is self._state
            and list(map(len, self._parts)) == self._sizes
            and all(map(operator.is_, itertools.chain.from_iterable(self._parts), self._each))
        )

    def takes_lists_of(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether groups hold the same parameters, if perhaps in other lists than before."""
        lists = [group["params"] for group in optimizer.param_groups]
        for one, two in zip(lists, self._params, strict=True):
            if len(one) != len(two) or not all(map(operator.is_, one, two)):
                return False
        self._params = lists
        self._look()
        return True


def suits_fused(optimizer: torch.optim.Optimizer, device: str) -> bool:
    """Whether all its parameters can be updated by one kernel."""
    kinds = FUSED if device == "cuda" else FUSED_ON_CPU
    is_promoted = torch.float32 == torch.float64  # `verify`: kernels want real float32
    if is_promoted or type(optimizer) not in kinds:
        return False
    for group in optimizer.param_groups:
        asked = group.get("fused") is False or group.get("foreach") is not None
        if asked or group.get("differentiable") or isinstance(group.get("lr"), Tensor):
            return False
        if not all(_suits(param, device) for param in group["params"]):
            return False
    return True


def _suits(param: Tensor, device: str) -> bool:
    if not param.is_floating_point() or param.device.type != device:
        return False
    if device == "cuda" and param.dtype is torch.float64:
        return False  # the kernel wants its learning rate in float32
    return param.grad is None or param.grad.layout == torch.strided


@contextlib.contextmanager
def fast(
    optimizer: torch.optim.Optimizer, device: str, rates: list[Tensor] | None = None
) -> Iterator[None]:
    """Let the optimizer step in one kernel, and so that it can be captured, while this lasts."""
    kind = type(optimizer)
    changes: dict[str, Any] = {}
    if suits_fused(optimizer, device):
        changes["fused"] = True
    if device == "cuda" and kind in (*CAPTURABLE, *FUSED[:2]):
        changes["capturable"] = True
    kept = [
        {name: group[name] for name in (*changes, "lr") if name in group}
        for group in optimizer.param_groups
    ]
    try:
        for index, group in enumerate(optimizer.param_groups):
            group.update({name: value for name, value in changes.items() if name in group})
            if rates is not None:
                group["lr"] = rates[index]
        if changes:
            _move_counts(optimizer, device)
        yield
    finally:
        for group, before in zip(optimizer.param_groups, kept, strict=True):
            group.update(before)


def _move_counts(optimizer: torch.optim.Optimizer, device: str) -> None:
    """Steps that were counted on the CPU so far are counted on the device from now on."""
    if device != "cuda":
        return
    for param, state in optimizer.state.items():
        count = state.get("step")
        if isinstance(count, Tensor) and count.device != param.device:
            state["step"] = count.to(param.device, torch.float32)


def rate_tensors(optimizer: Any, device: torch.device) -> list[Tensor] | None:
    """Learning rates on the device, one for each group; None where the kind wants numbers."""
    if type(optimizer) is torch.optim.Rprop or type(optimizer) is torch.optim.ASGD:
        return None
    return [
        torch.full((), float(group["lr"]), dtype=_rate_type(group), device=device)
        for group in optimizer.param_groups
    ]


def _rate_type(group: dict[str, Any]) -> torch.dtype:
    """As precise as what it is multiplied with."""
    is_double = any(param.dtype is torch.float64 for param in group["params"])
    return torch.float64 if is_double else torch.float32


def rates_of(optimizer: Any) -> list[float]:
    """The learning rates as the script has them."""
    return [group["lr"] for group in optimizer.param_groups]
