"""reparto shares out an unmodified PyTorch training script over the machines you have.

The names below are what converted scripts call, and what a person may call who would rather
write the two lines than have them written:

    import reparto

    model, optimizer, loader = reparto.prepare(model, optimizer, loader)

Importing this package imports neither torch nor anything else that is heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from reparto._version import __version__

if TYPE_CHECKING:
    from reparto.runtime import agree as agree
    from reparto.runtime import barrier as barrier
    from reparto.runtime import init as init
    from reparto.runtime import is_main as is_main
    from reparto.runtime import later as later
    from reparto.runtime import now as now
    from reparto.runtime import prepare as prepare
    from reparto.runtime import rank as rank
    from reparto.runtime import shard as shard
    from reparto.runtime import world_size as world_size

_OF_RUNTIME = (
    "init",
    "prepare",
    "shard",
    "agree",
    "rank",
    "world_size",
    "is_main",
    "barrier",
    "later",
    "now",
)

__all__ = ["__version__", *_OF_RUNTIME]


def __getattr__(name: str) -> Any:
    if name not in _OF_RUNTIME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module("reparto.runtime"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_OF_RUNTIME})
