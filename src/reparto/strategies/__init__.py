"""How replicas agree: one file a strategy.

A strategy of your own is a module with a ``Strategy`` subclass that has a nested ``Config``; make
it known with ``register`` or through the entry-point group ``reparto.strategies``.
"""

from __future__ import annotations

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
from reparto.strategies._momentum import rescaled
from reparto.strategies._parameter_server import ParameterServer
from reparto.strategies._post_local_sgd import PostLocalSGD
from reparto.strategies._registry import Registry
from reparto.strategies._settings import validated
from reparto.strategies._sharded import Sharded
from reparto.strategies._single import Single
from reparto.strategies._switch import Switch
from reparto.strategies._topology import costs_of

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
    "Sharded",
    "Shared",
    "Single",
    "Strategy",
    "Switch",
    "available",
    "costs_of",
    "describe",
    "from_spec",
    "grad_of",
    "register",
    "rescaled",
    "set_grad",
]

_registry: Registry[Config] = Registry("strategy", "reparto.strategies")
register, available = _registry.register, _registry.available

_OURS = (
    Single,
    AllReduce,
    Sharded,
    ParameterServer,
    LocalSGD,
    PostLocalSGD,
    DiLoCo,
    Gossip,
    Switch,
)
for _kind in _OURS:
    register(_kind.Config)


def from_spec(spec: StrategyConfig) -> Config:
    """The validated settings of a strategy.

    Settings of a compressor may be nested or have dotted names: ``compressor.kind``.

    Raises:
        UsageError: If the kind or a setting is unknown, or a setting has the wrong type.
    """
    return validated(_registry.get(spec.kind), spec.settings, f"strategy {spec.kind!r}")
