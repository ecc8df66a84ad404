"""What does not pass through torch functions, and must not meet tensors that stand for others.

Functions of the user's own for gradients, compiled code, other threads, and modules whose tensors
are exchanged for the time of a call. What was put off is computed before any of them runs.
"""

from __future__ import annotations

import functools
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from reparto.runtime.accelerate._found import tensors_in

if TYPE_CHECKING:
    from reparto.runtime.accelerate._engine import Engine

Made = Callable[[Any], Any]


def replacements(engine: Engine) -> list[tuple[Any, str, Made]]:
    """What is to be replaced: owner, name, and what makes the replacement of the original."""
    function = "a function of the script's own for gradients"
    compiled = "compiled code"
    return [
        (
            torch.autograd.Function,
            "apply",
            lambda o: classmethod(_plainly(engine, o.__func__, function)),
        ),
        (torch._C.ScriptFunction, "__call__", lambda o: _plainly(engine, o, compiled)),
        (torch._C.ScriptMethod, "__call__", lambda o: _plainly(engine, o, compiled)),
        (nn.utils.stateless, "_functional_call", lambda o: _exchanging(engine, o)),
        (threading.Thread, "start", lambda o: _handing_over(engine, o, always=True)),
        (queue.Queue, "put", lambda o: _handing_over(engine, o)),
        (ThreadPoolExecutor, "submit", lambda o: _handing_over(engine, o, always=True)),
    ]


def _plainly(engine: Engine, original: Any, what: str) -> Any:
    """It gets computed tensors, and no tape holds it."""

    @functools.wraps(original)
    def apply(own: Any, *args: Any, **kwargs: Any) -> Any:
        if not engine.is_here or engine.is_busy:
            return original(own, *args, **kwargs)
        args, kwargs = engine.plainly(what, args, kwargs)
        return original(own, *args, **kwargs)

    return apply


def _exchanging(engine: Engine, original: Any) -> Any:
    """Layers have other tensors than their own inside of it: they are no calls of a tape."""

    @functools.wraps(original)
    def functional_call(*args: Any, **kwargs: Any) -> Any:
        pure = engine.pure
        if pure is None or not engine.is_here:
            return original(*args, **kwargs)
        pure.num_exchanges += 1
        try:
            return original(*args, **kwargs)
        finally:
            pure.num_exchanges -= 1

    return functional_call


def _handing_over(engine: Engine, original: Any, *, always: bool = False) -> Any:
    """Another thread may read what it is handed: it is computed before."""

    @functools.wraps(original)
    def hand_over(own: Any, *args: Any, **kwargs: Any) -> Any:
        is_read = always or bool(tensors_in((args, kwargs)))
        if is_read and engine.is_here and not engine.is_busy:
            engine.hand_over((args, kwargs))
        return original(own, *args, **kwargs)

    return hand_over
