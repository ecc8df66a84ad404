"""Convolutions whose channels lie side by side (NHWC), as a GPU's tensor cores want them.

torch lays out images as N×C×H×W. In 16 bits a convolution is computed in N×H×W×C all the same,
and what goes in and comes out is laid out anew each time. Here what goes in is laid out so once;
what comes out then lies so too, through all that works element by element, to the next one.
Shapes and numbers are the same; only where they lie differs, and only within the step.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reparto.runtime.accelerate._pure import PureCall
from reparto.runtime.accelerate._taped import Tape

_LAYERS = (nn.Conv2d, nn.ConvTranspose2d)
_NAMES = ("conv2d", "conv_transpose2d")
_FUNCTIONS = frozenset(getattr(owner, name) for owner in (F, torch) for name in _NAMES)


_OPERATORS = "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()
_IN_PLACE = frozenset(["__setitem__", *(f"__i{name}__" for name in _OPERATORS)])


def in_channels_last(tape: Tape) -> Tape | None:
    """The same tape with its convolutions so; None if it has none, or may not be changed.

    Args:
        tape: As it was recorded.
    """
    if not any(_convolves(call.func) for call in tape.calls):
        return None
    may_copy = not any(is_in_place(call.func, call.kwargs) for call in tape.calls)
    calls = []
    for call in tape.calls:
        func = call.func
        if _convolves(func):
            func = Convolving(func)
        elif func is Tensor.view and may_copy:
            func = Tensor.reshape  # what lies otherwise cannot be seen as another shape
        calls.append(dataclasses.replace(call, func=func))
    return dataclasses.replace(tape, calls=calls)


def _convolves(func: Any) -> bool:
    if isinstance(func, PureCall):
        return any(isinstance(one, _LAYERS) for one in func.layers())
    return func in _FUNCTIONS


def is_in_place(func: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a call may write into a tensor that another one is a view of."""
    if isinstance(func, PureCall):
        return any(getattr(one, "inplace", False) for one in func.layers())
    name = getattr(func, "__name__", "")
    is_named_so = name.endswith("_") and not name.endswith("__")
    return is_named_so or name in _IN_PLACE or bool(kwargs.get("inplace"))


class Convolving:
    """A call of a tape in which convolutions are computed so.

    Args:
        func: What the script calls.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func
        self.__name__ = getattr(func, "__name__", type(func).__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(self.func, PureCall):
            return _laid_out(self.func)(*args, **kwargs)
        with _layers_laid_out():
            return self.func(*args, **kwargs)


def _laid_out(func: Any) -> Any:
    @functools.wraps(func)
    def convolution(given: Tensor, *args: Any, **kwargs: Any) -> Any:
        if given.dim() == 4:
            given = given.contiguous(memory_format=torch.channels_last)
        return func(given, *args, **kwargs)

    return convolution


@contextmanager
def _layers_laid_out() -> Iterator[None]:
    """Layers look for these functions when they are called."""
    originals = {name: getattr(F, name) for name in _NAMES}
    for name, original in originals.items():
        setattr(F, name, _laid_out(original))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(F, name, original)
