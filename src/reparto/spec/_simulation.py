"""Simulation: what a strategy would take on hosts that are not there, step by step."""

from __future__ import annotations

from dataclasses import dataclass

from reparto.spec._plan import StrategyConfig


@dataclass(frozen=True, kw_only=True)
class Milestone:
    """When a step was done, for good.

    Attributes:
        step: How many were done then.
        time_s: Since the first began.
    """

    step: int
    time_s: float


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What some steps of a strategy would take, with workers that vary, crawl and fail.

    A step of a strategy whose workers do not wait for each other is as many steps of theirs as
    there are workers, whoever makes them. Shares are of a worker's time, and add up to 1.

    Attributes:
        strategy: With its settings.
        label: As tables name it.
        num_workers: How many.
        exact: Whether the training is the sequential one.
        num_steps: That were to be simulated.
        is_finished: Whether they were done; workers may fail so often that they never are.
        samples_a_step: Of the global batch.
        total_s: Seconds of these steps, with what was lost on the way.
        mean_s: Of a step, with what was lost on the way.
        median_s: Of a step.
        p95_s: Of a step: 95 of 100 take no longer.
        longest_s: Of a step.
        computing: Share of the script's own computing.
        packing: Share of the strategy's own (compressing, adding).
        talking: Share in which something travels, or is served, and nothing else can be done.
        waiting: Share in which others are waited for.
        down: Share in which nothing runs, after a failure.
        num_failures: Of workers.
        steps_lost: That had to be made again.
        wire_bytes: That one worker puts on the wire in a step; the mean.
        speed_up: Over the plain script on one host, in samples a second.
        script_steps: Of the whole script; None where that cannot be told.
        script_s: Seconds of the whole script; None where that cannot be told.
        curve: When steps were done; some hundred of them, the last one among them.
    """

    strategy: StrategyConfig
    label: str
    num_workers: int
    exact: bool = True
    num_steps: int
    is_finished: bool = True
    samples_a_step: int
    total_s: float
    mean_s: float
    median_s: float
    p95_s: float
    longest_s: float
    computing: float
    packing: float = 0.0
    talking: float = 0.0
    waiting: float = 0.0
    down: float = 0.0
    num_failures: int = 0
    steps_lost: int = 0
    wire_bytes: float = 0.0
    speed_up: float = 1.0
    script_steps: int | None = None
    script_s: float | None = None
    curve: tuple[Milestone, ...] = ()

    @property
    def samples_per_s(self) -> float:
        """Throughput."""
        return self.samples_a_step / self.mean_s

    @property
    def efficiency(self) -> float:
        """Speed-up over the number of hosts."""
        return self.speed_up / self.num_workers
