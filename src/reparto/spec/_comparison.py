"""Comparison: strategies side by side on one script, as they were measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from reparto.spec._plan import StrategyConfig
from reparto.spec._run import RunResult


@dataclass(frozen=True, kw_only=True)
class Waypoint:
    """Where a run stood after a step.

    Attributes:
        step: The step.
        time_s: Seconds since the script began, on worker 0.
        samples: Samples used so far; 0 if unknown.
        loss: Of this step, mean over workers; None where no worker knew it.
        trend: The loss, smoothed: its exponential mean over the last steps; None before there
            is any.
        wire_bytes: Bytes that a worker has put on the wire so far, mean over workers.
        waited_s: Seconds that a worker has spent exchanging and waiting so far, mean over workers.
    """

    step: int
    time_s: float
    samples: int
    loss: float | None = None
    trend: float | None = None
    wire_bytes: float = 0.0
    waited_s: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ComparedRun:
    """One strategy's run.

    Attributes:
        label: As tables and plots name it; no two runs have the same.
        strategy: The strategy and its settings.
        exact: Whether it keeps the mathematics of the sequential script.
        result: How it ended; ``stopped`` also where it was, once it had reached the target.
        curve: From the first step to the last; of long runs, evenly spaced steps.
        reached: Where the trend first was as low as the target; None if it never was.
    """

    label: str
    strategy: StrategyConfig
    exact: bool
    result: RunResult
    curve: tuple[Waypoint, ...] = ()
    reached: Waypoint | None = None

    @property
    def last(self) -> Waypoint | None:
        """Where it stood at its end."""
        return self.curve[-1] if self.curve else None

    def time_to(self, point: Waypoint) -> float:
        """Seconds of training up to there, which count from the end of the first step.

        What comes before, such as loading data, is the script's affair, the same for all.
        """
        return point.time_s - self.curve[0].time_s

    @property
    def training_s(self) -> float:
        """Seconds from the end of the first step to that of the last."""
        return self.time_to(self.curve[-1]) if self.curve else 0.0

    @property
    def waiting_s(self) -> float:
        """Seconds of these that a worker spent exchanging and waiting."""
        return self.curve[-1].waited_s - self.curve[0].waited_s if self.curve else 0.0

    @property
    def status(self) -> Literal["done", "reached", "failed", "stopped"]:
        """How it ended; ``stopped`` by the user only."""
        return "reached" if self.reached is not None else self.result.status


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Strategies side by side.

    Attributes:
        script: Path of the script.
        args: Its own arguments.
        seed: Of every run.
        target: The loss that runs were to reach, if any.
        samples: After how many samples runs were to end, if that was asked for.
        environment: Where it was measured, in words: host, cores, torch, …
        runs: In the order in which they were run.
    """

    script: str
    args: tuple[str, ...] = ()
    seed: int = 0
    target: float | None = None
    samples: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[ComparedRun, ...] = ()
