"""Steps and zeroings as calls of a tape."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor

from reparto.runtime.accelerate._steps import fast


class StepOf:
    """The step of an optimizer, as a call of a tape; without what torch and we hang on it."""

    def __init__(self, optimizer: Any, kind: str) -> None:
        self.ref, self.kind = weakref.ref(optimizer), kind
        self.rates: list[Tensor] | None = None
        self.__name__ = "step"

    def __call__(self) -> None:
        optimizer: Any = self.ref()
        step = type(optimizer).step
        while getattr(step, "hooked", False) or hasattr(step, "_reparto"):
            step = step.__wrapped__
        with fast(optimizer, self.kind, self.rates):
            step(optimizer)


class ZeroOf:
    """The zeroing of an optimizer's or a module's gradients, as a call of a tape."""

    def __init__(self, owner: Any, original: Callable[..., Any]) -> None:
        self.ref, self.original = weakref.ref(owner), original
        self.__name__ = "zero_grad"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.original(self.ref(), *args, **kwargs)
