"""The ways of running a script that the planner weighs: every strategy, as reparto would set it.

Settings of relaxed ones are those that did best in ``benchmarks/strategies`` and
``benchmarks/captioning_network``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reparto.spec import StrategyConfig

_ONE_BIT = {"compressor": {"kind": "quantize", "bits": 1}}
_ROUNDS = {"outer_momentum": 0.5, "moments": "level", "show": "round", **_ONE_BIT}


@dataclass(frozen=True)
class Candidate:
    """A strategy with its settings.

    Attributes:
        label: As tables and plots name it.
        strategy: With its settings.
        exact: Whether the training stays the sequential one.
    """

    label: str
    strategy: StrategyConfig
    exact: bool = False


def _candidate(
    label: str, kind: str, settings: Mapping[str, Any] | None = None, *, exact: bool = False
) -> Candidate:
    return Candidate(label, StrategyConfig(kind=kind, settings=dict(settings or {})), exact)


EXACT = (
    _candidate("all-reduce", "all-reduce", exact=True),
    _candidate("parameter-server", "parameter-server", exact=True),
    _candidate("sharded", "sharded", exact=True),
)

_OWN = {"batch": "worker"}
RELAXED = (
    _candidate("all-reduce, a batch each", "all-reduce", _OWN),
    _candidate("server, stale", "parameter-server", {**_OWN, "mode": "stale"}),
    _candidate("server, async", "parameter-server", {**_OWN, "mode": "async"}),
    _candidate("diloco, every step", "diloco", {"sync_every": 1, **_OWN, **_ONE_BIT}),
    _candidate("diloco, rounds of 4", "diloco", {"sync_every": 4, **_OWN, **_ROUNDS}),
    _candidate(
        "diloco, rounds of 8 overlapped",
        "diloco",
        {"sync_every": 8, "overlap": 3, "keep": 1.0, **_OWN, **_ROUNDS},
    ),
    _candidate("local-sgd, rounds of 2", "local-sgd", {"sync_every": 2, **_OWN, **_ONE_BIT}),
    _candidate("local-sgd", "local-sgd", _OWN),
    _candidate("post-local-sgd", "post-local-sgd", _OWN),
    _candidate("gossip", "gossip", _OWN),
    _candidate("switch", "switch", _OWN),
)


def candidates(*, relaxed: bool) -> tuple[Candidate, ...]:
    """What is weighed beside staying on one machine."""
    return EXACT + RELAXED if relaxed else EXACT
