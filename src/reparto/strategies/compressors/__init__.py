"""Fewer bytes for the same gradient, or nearly: one file a compressor.

A compressor is a part of a strategy's settings (``compressor.kind=topk``), not a strategy. It is
handed flat tensors and adds them up over workers, lossily; what it loses it owes to itself and
adds to what comes next (error feedback).
"""

from __future__ import annotations

from typing import Any

from reparto.errors import UsageError
from reparto.strategies.compressors._base import Compressor, Config
from reparto.strategies.compressors._cast import Cast
from reparto.strategies.compressors._none import Uncompressed
from reparto.strategies.compressors._powersgd import PowerSGD
from reparto.strategies.compressors._quantize import Quantize
from reparto.strategies.compressors._topk import RandomK, TopK

__all__ = [
    "Cast",
    "Compressor",
    "Config",
    "PowerSGD",
    "Quantize",
    "RandomK",
    "TopK",
    "Uncompressed",
    "available",
    "config_of",
    "register",
]

_known: dict[str, type[Config]] = {}


def register(config: type[Config]) -> type[Config]:
    """Make a compressor known under its ``kind``."""
    _known[config.kind] = config
    return config


for _kind in (Uncompressed, Cast, Quantize, TopK, RandomK, PowerSGD):
    register(_kind.Config)


def available() -> dict[str, type[Config]]:
    """Every known compressor, plugins included."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="reparto.compressors"):
        if entry.name not in _known:
            _known[entry.name] = entry.load()
    return dict(_known)


def config_of(kind: str) -> type[Config]:
    """The settings' class of a compressor.

    Raises:
        UsageError: If there is none of that name.
    """
    kinds = _known if kind in _known else available()
    if kind not in kinds:
        names: Any = ", ".join(sorted(kinds))
        raise UsageError(f"unknown compressor {kind!r}", remedy=f"choose one of {names}")
    return kinds[kind]
