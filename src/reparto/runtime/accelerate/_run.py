"""Making the calls of a tape: in order, with the tensors of now."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._found import rebuilt, tensors_in
from reparto.runtime.accelerate._tape import Call, Given, Made, Rebuilt

Modes = tuple[bool, bool, torch.dtype]
Run = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def modes_now(device: str) -> Modes:
    """Whether gradients and autocast are on."""
    return (
        torch.is_grad_enabled(),
        torch.is_autocast_enabled(device),
        torch.get_autocast_dtype(device),
    )


@contextlib.contextmanager
def in_modes(modes: Modes, device: str) -> Iterator[None]:
    """As it was when a call was written down."""
    has_gradients, is_cast, dtype = modes
    with torch.set_grad_enabled(has_gradients):
        if not is_cast:
            yield
            return
        with torch.autocast(device, dtype=dtype, cache_enabled=False):
            yield


def make_calls(
    calls: Sequence[Call],
    given: Sequence[Tensor] | Mapping[int, Tensor],
    num_made: int,
    device: str,
    run: Run,
    earlier: Mapping[int, Tensor] = MappingProxyType({}),
) -> list[Tensor | None]:
    """Make calls, and return what they made.

    Args:
        calls: In order.
        given: What stands for each `Given`.
        num_made: How many tensors all calls of the tape make.
        device: Whose autocast it is.
        run: Makes one call.
        earlier: What calls before these have made.
    """
    made = [earlier.get(index) for index in range(num_made)]

    def value_of(noted: Any) -> Any:
        kind = type(noted)
        if kind is Made:
            return made[noted.index]
        if kind is Given:
            return given[noted.index]
        if kind is tuple or kind is list:
            return kind(map(value_of, noted))
        if kind is dict:
            return {key: value_of(one) for key, one in noted.items()}
        if kind is Rebuilt:
            return rebuilt(noted.like, [value_of(one) for one in noted.parts])
        return noted

    for call in calls:
        with in_modes(call.modes, device):
            result = run(call.func, value_of(call.args), value_of(call.kwargs))
        for ref, tensor in zip(refs_in(call.result), tensors_in(result), strict=True):
            if type(ref) is Made:
                made[ref.index] = tensor
    return made


def refs_in(noted: Any) -> list[Made | Given]:
    """The tensors that a value mentions, in order."""
    kind = type(noted)
    if kind is Made or kind is Given:
        return [noted]
    parts: Any = ()
    if kind is tuple or kind is list:
        parts = noted
    elif kind is dict:
        parts = noted.values()
    elif kind is Rebuilt:
        parts = noted.parts
    return [ref for part in parts for ref in refs_in(part)]
