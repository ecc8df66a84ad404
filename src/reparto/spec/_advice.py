"""Advice: which device to use, from when it pays, at what price. Follows from measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The device for one model at one batch size.

    Attributes:
        suite: As of `Work`.
        model: As of `Work`.
        num_parameters: As of `Work`.
        mode: ``train`` or ``infer``.
        dtype: Precision.
        batch_rows: Samples of a step or call.
        device: The fastest.
        form: In which it is the fastest.
        step_s: Then.
        others: By device, its best time.
        costs: By device, of a pass over the data, or of a million samples of inference; only
            where prices were given.
        cheapest: Of these; empty without prices.
        undecided: Whether the intervals of the two fastest overlap.
    """

    suite: str
    model: str
    num_parameters: int
    mode: Literal["train", "infer"]
    dtype: str
    batch_rows: int
    device: str
    form: str
    step_s: float
    others: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, float] = field(default_factory=dict)
    cheapest: str = ""
    undecided: bool = False


@dataclass(frozen=True, kw_only=True)
class Crossover:
    """From where on a GPU is faster than the CPU.

    Attributes:
        mode: ``train`` or ``infer``.
        dtype: Precision.
        along: What grows: ``batch`` of one model, or ``parameters`` at one batch.
        fixed: That model, or that batch.
        cpu: The one device.
        gpu: The other.
        at: From this batch, or number of parameters, on; None if never, as far as measured.
        least: The smallest that was measured: the GPU pays everywhere if `at` is this.
    """

    mode: Literal["train", "infer"]
    dtype: str
    along: Literal["batch", "parameters"]
    fixed: str
    cpu: str
    gpu: str
    at: float | None
    least: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether a device answers within a deadline.

    Attributes:
        suite: As of `Work`.
        model: As of `Work`.
        device: The device.
        form: Its fastest form for a call of that size.
        dtype: Precision.
        deadline_s: The deadline, held by 99 of 100 calls.
        largest_rows: The largest call that was seen to meet it; 0 if none does.
        at_least: Whether a larger one was not tried.
    """

    suite: str
    model: str
    device: str
    form: str
    dtype: str
    deadline_s: float
    largest_rows: int
    at_least: bool


@dataclass(frozen=True, kw_only=True)
class Advice:
    """All of it, and in words."""

    choices: tuple[Choice, ...] = ()
    crossovers: tuple[Crossover, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    words: tuple[str, ...] = ()
