"""Shortcuts: what scripts call in every step goes straight to the comparison whose turn it is.

Modules, functions that are written in Python, and the zeroing of gradients do not come to the
engine through torch's dispatcher, but through what stands in their place while a run lasts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from reparto.runtime.accelerate._calls import QUIET
from reparto.runtime.accelerate._compare import MISS
from reparto.runtime.accelerate._opened import OPENED

if TYPE_CHECKING:
    from reparto.runtime.accelerate._engine import Engine

_depth: Callable[[], int] = torch._C._len_torch_function_stack
_thread = threading.get_ident


def handling(engine: Engine, original: Any) -> Any:
    """``torch.overrides.handle_torch_function``, as functions in Python call it."""
    turn, opening = engine.turn, engine.opening

    def handle_torch_function(
        public_api: Any, relevant_args: Any, *args: Any, **kwargs: Any
    ) -> Any:
        # Nobody else listens to torch functions, and it is our thread.
        if _depth() == 1 and _thread() == engine.thread and not engine.is_busy:
            compare = turn.compare
            if compare is not None:
                answer = compare(public_api, args, kwargs)
                if answer is not MISS:
                    return answer
            if public_api in QUIET:
                with torch._C.DisableTorchFunction():
                    return public_api(*args, **kwargs)
            if opening is not None and public_api in OPENED:
                return opening.call(public_api, args, kwargs)
        return original(public_api, relevant_args, *args, **kwargs)

    return handle_torch_function


def calling(engine: Engine, original: Any) -> Any:
    """``nn.Module.__call__``: torch's own layers are one call, all others what they do inside."""
    turn, pure, is_compiling = engine.turn, engine.pure, torch.compiler.is_compiling
    assert pure is not None
    known, changes = pure.known, pure.changes

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        compare = turn.compare
        if (
            compare is not None
            and _depth() == 1
            and _thread() == engine.thread
            and not engine.is_busy
        ):
            found = known.get(id(self))
            if found is not None and found[0] == changes.count and not pure.num_exchanges:
                if found[1] is None:
                    return original(self, *args, **kwargs)
                answer = compare(found[1], args, kwargs)
                if answer is not MISS:
                    return answer
        return engine.module(self, original, args, kwargs)

    return __call__


def zeroing(engine: Engine, original: Any) -> Any:
    """``zero_grad`` of optimizers and modules."""
    turn, calls = engine.turn, engine.zero_calls

    def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
        compare = turn.compare
        if compare is not None and _thread() == engine.thread:
            call = calls.get(self)
            if call is not None and compare(call, args, kwargs) is not MISS:
                return
        engine.zero_grad(self, original, args, kwargs)

    return zero_grad
