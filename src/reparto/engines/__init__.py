"""Where workers run. To add an engine: one file with a subclass of `Engine`, one line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from reparto.engines._base import Engine, Launch, Run, WorkerLaunch
from reparto.engines._interrupts import Interrupts
from reparto.engines._tf_config import Task, task_of
from reparto.errors import UsageError

__all__ = [
    "Engine",
    "Interrupts",
    "Launch",
    "Run",
    "Task",
    "WorkerLaunch",
    "build",
    "engine_for",
    "kinds",
    "task_of",
]

# Named, not imported: each engine brings libraries of its own.
_ENGINES = {
    "local": "reparto.engines._local:LocalEngine",
    "peers": "reparto.engines._peers:PeersEngine",
    "ray": "reparto.engines._ray:RayEngine",
}


def kinds() -> tuple[str, ...]:
    """Return the names of all engines, those of other packages too."""
    return (*_ENGINES, *_plugins())


def engine_for(given: str, env: Mapping[str, str]) -> str:
    """Choose an engine.

    Args:
        given: What the user asked for, which holds; empty for nothing.
        env: The environment: TF_CONFIG may name several hosts.

    Raises:
        UsageError: If TF_CONFIG has a say and cannot be understood.

    Example:
        >>> engine_for("", {})
        'local'
    """
    task = None if given else task_of(env)
    if task is None:
        return given or "local"
    # A task without a part must not train on its own, however few the others are.
    return "peers" if len(task.peers) > 1 or task.position is None else "local"


def build(kind: str, *, address: str = "", ship: tuple[str, ...] = ()) -> Engine:
    """Make an engine by name.

    Args:
        kind: One of `kinds`.
        address: Where the cluster is, for engines that have one.
        ship: Paths that travel to hosts that lack them.

    Raises:
        UsageError: If there is no such engine.
        MissingExtraError: If its libraries are not installed.

    Example:
        >>> build("local").kind
        'local'
    """
    target = _ENGINES.get(kind) or _plugins().get(kind)
    if target is None:
        raise UsageError(f"there is no engine {kind!r}", remedy=f"one of {', '.join(kinds())}")
    module, _, name = target.partition(":")
    engine: Engine = getattr(import_module(module), name)(address=address, ship=ship)
    return engine


def _plugins() -> dict[str, str]:
    from importlib.metadata import entry_points  # slow to import, seldom needed

    return {point.name: point.value for point in entry_points(group="reparto.engines")}
