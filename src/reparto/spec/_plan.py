"""StrategyConfig, Traffic, Profile and Plan: what will be done, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

#: Who talks to whom. ``push`` and ``pull``: every worker with a server; ``swap``: everyone sends
#: to one other; ``exchange``: parts to their owners.
Pattern = Literal["all-reduce", "gather", "broadcast", "push", "pull", "exchange", "swap"]


@dataclass(frozen=True, kw_only=True)
class StrategyConfig:
    """A strategy by name with its settings, as they travel; ``strategies`` validates them."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Message:
    """One recurring communication of a strategy.

    Attributes:
        pattern: Who talks to whom.
        size_bytes: Payload that one worker contributes.
        every: Sent each that many steps.
        ready_at: When in the step the data is ready, as a fraction of the step.
        needed_at: When in the step the result is needed; not before it is ready. Where both are
            the same, it is waited for. A round may be needed in a later step: beyond 1.
    """

    pattern: Pattern
    size_bytes: int
    every: int = 1
    ready_at: float = 0.0
    needed_at: float = 1.0

    def wire_bytes(self, num_workers: int) -> float:
        """What one worker puts on the wire each time it is sent."""
        return wire_bytes(self.pattern, self.size_bytes, num_workers)


def wire_bytes(pattern: Pattern, size_bytes: int, num_workers: int) -> float:
    """What one worker puts on the wire for an operation over all workers.

    Args:
        pattern: A ring of sums, a ring of gathers, parts to their owners; others go to one peer.
        size_bytes: Payload that the worker hands over.
        num_workers: How many take part.
    """
    others = (num_workers - 1) / num_workers
    factors = {"all-reduce": 2 * others, "gather": num_workers - 1, "exchange": others}
    return factors.get(pattern, 1.0) * size_bytes


Traffic = tuple[Message, ...]


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What was measured of a script on one worker.

    Attributes:
        num_parameters: Trainable parameters.
        gradient_bytes: Bytes of gradient a step.
        step_s: Seconds a step, by number of samples in the slice.
        forward_fraction: Share of the step before the backward pass begins.
        shapes: Of the trainable parameters, where they are known.
        batch_rows: Samples in a batch of the script.
        base_bytes: Memory that does not depend on the batch: parameters, gradients, optimizer
            state, data; beyond that of a process that has only imported what it needs.
        row_bytes: Memory that each row of the slice adds at the peak.
        loads_whole: Whether every worker loads whole batches, and keeps its rows.
        load_s: Processor time of loading such a batch, where workers with a batch each would have
            to load those of the others, too.
    """

    num_parameters: int
    gradient_bytes: int
    step_s: Mapping[int, float] = field(default_factory=dict)
    forward_fraction: float = 1 / 3
    shapes: tuple[tuple[int, ...], ...] = ()
    batch_rows: int = 0
    base_bytes: int = 0
    row_bytes: float = 0.0
    loads_whole: bool = False
    load_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will do: how many workers, where, which strategy, and why.

    Attributes:
        strategy: The strategy and its settings.
        num_workers: Workers in all.
        placement: For each rank the name of its host.
        threads_per_worker: Threads that each worker computes with.
        device: What workers compute on.
        exact: Whether the mathematics of the sequential script is kept.
        accelerate: Whether the one worker makes the most of its device: without a change to the
            numbers, or with numbers of less precision; empty for neither.
        reasons: One line each, for people.
    """

    strategy: StrategyConfig
    num_workers: int
    placement: tuple[str, ...]
    threads_per_worker: int = 1
    device: Literal["cpu", "cuda"] = "cpu"
    exact: bool = True
    accelerate: Literal["", "exact", "relaxed"] = ""
    reasons: tuple[str, ...] = ()
