"""What is forked off, a loader's workers say, computes as torch does: no engine, and no GPU."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reparto.runtime.accelerate._engine import Engine

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def leave_to_parent(engine: Engine) -> None:
    """From now on what this thread forks off goes on without the engine."""
    _engines.add(engine)


def _before() -> None:
    for engine in list(_engines):
        if engine.is_here and not engine.is_busy:
            engine.flush()  # the child cannot compute what is put off


def _in_child() -> None:
    for engine in list(_engines):
        engine.leave()


os.register_at_fork(before=_before, after_in_child=_in_child)
