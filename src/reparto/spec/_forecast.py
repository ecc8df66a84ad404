"""Prediction and Forecast: what ways of running a script would take, and which is best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from reparto.spec._plan import StrategyConfig
from reparto.spec._survey import Survey


@dataclass(frozen=True, kw_only=True)
class Span:
    """A part of a predicted step.

    Attributes:
        what: ``compute``: the script's own; ``pack``: the strategy's (compressing, adding);
            ``communicate``: something is under way; ``wait``: nothing else can be done.
        begin_s: Since the step began.
        end_s: Since the step began.
    """

    what: Literal["compute", "pack", "communicate", "wait"]
    begin_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What one way of running a script would take.

    Attributes:
        strategy: With its settings.
        label: As tables and plots name it.
        num_workers: How many.
        exact: Whether the training is the sequential one.
        changes: What is changed in its mathematics, in words; empty where it is exact.
        quality: What is known about the quality lost, and from where; empty where it is exact.
        samples_a_step: Of the global batch.
        compute_s: Of a step, the slowest worker's: the script's own computing.
        pack_s: The strategy's own computing.
        exchange_s: Talking that nothing hides, with waiting for the slowest.
        step_s: All of a step; as it was measured, where there was a trial.
        is_measured: Whether there was one.
        wire_bytes: That one worker puts on the wire in a step; the mean.
        peak_bytes: Memory of one worker beyond an idle one's; 0 where it is not known.
        num_steps: Of the whole script; None where that cannot be told.
        total_s: Seconds of the whole script; None where that cannot be told.
        speed_up: Over the plain script on one machine, in samples a second.
        price: Of the whole script; None where there are no prices, or the time is not known.
        timeline: Of the slowest worker's step; what is done at the same time overlaps.
    """

    strategy: StrategyConfig
    label: str
    num_workers: int
    exact: bool = True
    changes: str = ""
    quality: str = ""
    samples_a_step: int
    compute_s: float
    pack_s: float = 0.0
    exchange_s: float = 0.0
    step_s: float
    is_measured: bool = False
    wire_bytes: float = 0.0
    peak_bytes: int = 0
    num_steps: int | None = None
    total_s: float | None = None
    speed_up: float = 1.0
    price: float | None = None
    timeline: tuple[Span, ...] = ()

    @property
    def samples_per_s(self) -> float:
        """Throughput."""
        return self.samples_a_step / self.step_s


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a plan is to be like.

    Attributes:
        relaxed: Whether the mathematics may be changed.
        deadline_s: The cheapest that is done by then.
        budget: The fastest that costs no more.
        prices: Of an hour of each host, by its name; ``*`` for any other.
    """

    relaxed: bool = False
    deadline_s: float | None = None
    budget: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What every way of running a script would take, and which one is best.

    Attributes:
        survey: What was measured.
        wish: What the plan is to be like.
        predictions: The plain script on one machine first.
        chosen: Which of them; its index.
        why: In one line.
        what_if: What was assumed instead of measured, in words; empty for nothing.
    """

    survey: Survey
    wish: Wish
    predictions: tuple[Prediction, ...]
    chosen: int
    why: str
    what_if: str = ""

    @property
    def best(self) -> Prediction:
        """The one that was chosen."""
        return self.predictions[self.chosen]
