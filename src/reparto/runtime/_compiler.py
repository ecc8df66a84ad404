"""Torch's compiler is imported when it is needed, not when an optimizer is made.

The first optimizer of a process imports ``torch._dynamo``, only to be told that nothing is being
compiled: that takes as long as importing torch. A stand-in says so at once:

    import torch._dynamo ─► stand-in ─┬─ graph_break(), disable(f) ─► nothing, f
                                      └─ anything else ─► the real one takes its place
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

import torch

NAME = "torch._dynamo"
_lock = threading.RLock()


class _StandIn(ModuleType):
    """Answers what eager code asks; anything else brings the real module.

    Args:
        importing: Entered while the real module is imported.
    """

    def __init__(self, importing: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__(NAME)
        spec = importlib.util.find_spec(NAME)
        self.__file__ = spec.origin if spec is not None else None  # whoever lists modules asks
        self._importing = importing
        self._left_alone: list[Any] = []

    def graph_break(self, *args: Any, **kwargs: Any) -> None:
        """Nothing is being compiled."""

    def disable(self, fn: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Nothing is being compiled, so there is nothing to be left out of it."""
        if not callable(fn):
            return self._real().disable(fn, *args, **kwargs)
        self._left_alone.append(fn)
        return fn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def _real(self) -> ModuleType:
        with _lock:
            if sys.modules.get(NAME) is self:
                self.give_way()
                with self._importing():
                    importlib.import_module(NAME)
            return sys.modules[NAME]

    def give_way(self) -> None:
        """Take back all that was answered."""
        del sys.modules[NAME]
        if vars(torch).get("_dynamo") is self:
            del torch._dynamo
        for fn in self._left_alone:  # where torch keeps what `disable` has made
            with contextlib.suppress(AttributeError):
                del fn.__dynamo_disable
        self._left_alone.clear()


def put_off(importing: Callable[[], AbstractContextManager[None]]) -> Callable[[], None]:
    """Have ``torch._dynamo`` imported when it is needed, unless it is here already.

    Args:
        importing: Entered while that happens; takes away what the runtime has wrapped.

    Returns:
        What undoes it.
    """
    if NAME in sys.modules:
        return lambda: None
    stand_in = _StandIn(importing)
    sys.modules[NAME] = stand_in
    torch._dynamo = stand_in

    def undo() -> None:
        if sys.modules.get(NAME) is stand_in:
            stand_in.give_way()

    return undo
