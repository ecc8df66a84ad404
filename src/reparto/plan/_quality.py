"""What is known about the quality that relaxed strategies lose: only what was measured, and where.

Rows of the tables in ``benchmarks/strategies/README.md`` (LeNet-5 on Fashion-MNIST, points of test
accuracy against sequential at equal samples, 16 workers, mean of three seeds) and of
``benchmarks/captioning_network/README.md`` (steps to a development loss of 3.60, four workers).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reparto.spec import StrategyConfig

_LENET = "LeNet-5 on Fashion-MNIST, 16 workers: {} points (benchmarks/strategies)"
_CAPTIONS = "captioning, 4 workers: {} (benchmarks/captioning_network)"
_UNKNOWN = "not measured"

#: Kind, settings that must be so, what was measured. The first that fits is told.
_MEASURED: tuple[tuple[str, Mapping[str, Any], str], ...] = (
    ("all-reduce", {"batch": "worker", "compressor": None}, _LENET.format("+0.38")),
    ("parameter-server", {"mode": "stale", "compressor": None}, _LENET.format("−0.25")),
    ("parameter-server", {"mode": "async", "compressor": None}, _LENET.format("−0.44")),
    ("diloco", {"sync_every": 1, "bits": 1}, _LENET.format("+0.24")),
    (
        "diloco",
        {"sync_every": 4, "bits": 1, "moments": "level"},
        _CAPTIONS.format("230 steps to the loss for which gradients every step need 209"),
    ),
    (
        "diloco",
        {"sync_every": 8, "bits": 1, "moments": "level"},
        _CAPTIONS.format("274 steps to the loss for which gradients every step need 209"),
    ),
    ("local-sgd", {"sync_every": 2, "bits": 1}, _LENET.format("−0.53")),
)


def quality_of(strategy: StrategyConfig) -> str:
    """What was measured of a strategy with these settings, and where."""
    flat = _flat(strategy.settings)
    for kind, settings, told in _MEASURED:
        if kind == strategy.kind and all(flat.get(name) == v for name, v in settings.items()):
            return told
    return _UNKNOWN


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with those of the compressor beside them: its kind as ``compressor``, its bits."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "compressor" and isinstance(value, Mapping):
            found["compressor"] = value.get("kind")
            found |= {key: one for key, one in value.items() if key != "kind"}
        elif name.startswith("compressor."):
            key = name.removeprefix("compressor.")
            found["compressor" if key == "kind" else key] = value
        else:
            found[name] = value
    return found
