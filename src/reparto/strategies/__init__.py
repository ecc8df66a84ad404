"""How replicas agree: one file a strategy.

A strategy of your own is a module with a ``Strategy`` subclass that has a nested ``Config``; make
it known with ``register`` or through the entry-point group ``reparto.strategies``.
"""

from __future__ import annotations

from reparto.errors import UsageError
from reparto.spec import StrategyConfig
from reparto.strategies._all_reduce import AllReduce
from reparto.strategies._base import (
    Config,
    ParameterSet,
    Shared,
    Strategy,
    grad_of,
    set_grad,
)
from reparto.strategies._describe import Description, Knob, describe
from reparto.strategies._diloco import DiLoCo
from reparto.strategies._gossip import Gossip
from reparto.strategies._local_sgd import LocalSGD
from reparto.strategies._parameter_server import ParameterServer
from reparto.strategies._post_local_sgd import PostLocalSGD
from reparto.strategies._settings import validated
from reparto.strategies._single import Single

__all__ = [
    "AllReduce",
    "Config",
    "Description",
    "DiLoCo",
    "Gossip",
    "Knob",
    "LocalSGD",
    "ParameterServer",
    "ParameterSet",
    "PostLocalSGD",
    "Shared",
    "Single",
    "Strategy",
    "available",
    "describe",
    "from_spec",
    "grad_of",
    "register",
    "set_grad",
]

_known: dict[str, type[Config]] = {}


def register(config: type[Config]) -> type[Config]:
    """Make a strategy known under its ``kind``."""
    _known[config.kind] = config
    return config


for _kind in (Single, AllReduce, ParameterServer, LocalSGD, PostLocalSGD, DiLoCo, Gossip):
    register(_kind.Config)


def available() -> dict[str, type[Config]]:
    """Every known strategy, plugins included."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="reparto.strategies"):
        if entry.name not in _known:
            _known[entry.name] = entry.load()
    return dict(_known)


def from_spec(spec: StrategyConfig) -> Config:
    """The validated settings of a strategy.

    Settings of a compressor may be nested or have dotted names: ``compressor.kind``.

    Raises:
        UsageError: If the kind or a setting is unknown, or a setting has the wrong type.
    """
    kinds = _known if spec.kind in _known else available()
    if spec.kind not in kinds:
        raise UsageError(
            f"unknown strategy {spec.kind!r}", remedy=f"choose one of {', '.join(sorted(kinds))}"
        )
    return validated(kinds[spec.kind], spec.settings, f"strategy {spec.kind!r}")
