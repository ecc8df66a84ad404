"""Fewer bytes for the same gradient, or nearly: one file a compressor.

A compressor is a part of a strategy's settings (``compressor.kind=topk``), not a strategy. It is
handed flat tensors and adds them up over workers, lossily; what it loses it owes to itself and
adds to what comes next (error feedback).
"""

from __future__ import annotations

from reparto.strategies._registry import Registry
from reparto.strategies.compressors._base import Chunked, Compressor, Config
from reparto.strategies.compressors._cast import Cast
from reparto.strategies.compressors._none import Uncompressed
from reparto.strategies.compressors._powersgd import PowerSGD
from reparto.strategies.compressors._quantize import Quantize
from reparto.strategies.compressors._topk import RandomK, TopK

__all__ = [
    "Cast",
    "Chunked",
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

_registry: Registry[Config] = Registry("compressor", "reparto.compressors")
register, available, config_of = _registry.register, _registry.available, _registry.get

for _kind in (Uncompressed, Cast, Quantize, TopK, RandomK, PowerSGD):
    register(_kind.Config)
