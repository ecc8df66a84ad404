"""Measurement and BenchReport: what a model costs on a device, one row a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from reparto.spec._advice import Advice

#: What is wrong with a row, by name; `bench` says each in words.
Flag = Literal["did-not-learn", "not-like-for-like", "noisy", "throttled", "failed"]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What a row computed; rows are compared only where these are equal.

    Attributes:
        suite: ``grid``, ``cnn``, or the name of a script or class.
        model: Its name within the suite, such as ``800-400-208``.
        num_parameters: Trainable ones.
        num_samples: Of the data set that was trained on; for inference, the samples of a call.
        batch_rows: Samples of a step.
        data: Digest of the data.
        target_steps: Optimizer steps that were to be made.
    """

    suite: str
    model: str
    num_parameters: int
    num_samples: int
    batch_rows: int
    data: str
    target_steps: int


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One row: a model, doing one kind of work, in one way, on one device.

    Attributes:
        work: What was computed.
        hidden: Widths of the hidden layers of a perceptron; empty for others.
        mode: ``train`` or ``infer``.
        form: ``plain`` (the script's own loop), ``captured`` (a step as one graph of a GPU),
            ``accelerated`` (``reparto run --accelerate``), or, for inference, ``eager``,
            ``compiled``, ``exported``, ``onnx``.
        device: As torch names it, ``cpu`` or ``cuda:0``.
        device_name: As people name it.
        threads: That computed on a CPU; 0 on a GPU.
        dtype: ``f32``, ``tf32`` or ``bf16``.
        strategy: A strategy's kind; ``single`` for one worker.
        num_workers: How many.
        num_steps: That were timed.
        step_s: Median seconds of a step, or of a call for inference.
        low_s: Lower end of the 95 % interval of that median.
        high_s: Upper end.
        p99_s: Of inference: what one call in a hundred exceeds.
        epoch_s: Of a pass over the data, at that step time; None for inference.
        samples_per_s: At that step time.
        flops_a_step: Multiplications and additions, counted; 0 where they could not be.
        share_of_peak: Of the device's peak as it was measured; None where it was not.
        peak_bytes: The most memory beyond an idle process; of the GPU where it computed on one.
        energy_j: Of a step; None where the device does not report it.
        loss_first: Before the first step.
        loss_last: After `Work.target_steps`, on samples that are the same for all rows; of a
            script the mean of its last steps.
        loss_constant: That of the best constant answer on the same data.
        flags: What is wrong with it.
        notes: In words, for people.
        failure: Why there are no figures; empty where there are.
    """

    work: Work
    hidden: tuple[int, ...] = ()
    mode: Literal["train", "infer"] = "train"
    form: str = "plain"
    device: str = "cpu"
    device_name: str = ""
    threads: int = 0
    dtype: Literal["f32", "tf32", "bf16"] = "f32"
    strategy: str = "single"
    num_workers: int = 1
    num_steps: int = 0
    step_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    p99_s: float | None = None
    epoch_s: float | None = None
    samples_per_s: float | None = None
    flops_a_step: float = 0.0
    share_of_peak: float | None = None
    peak_bytes: int = 0
    energy_j: float | None = None
    loss_first: float | None = None
    loss_last: float | None = None
    loss_constant: float | None = None
    flags: tuple[Flag, ...] = ()
    notes: tuple[str, ...] = ()
    failure: str = ""


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """All rows of an evaluation, and where they were made.

    Attributes:
        environment: Machine, devices, versions, and each device's measured peak.
        measurements: In the order in which they were made.
        planned: How many rows there will be when it is complete.
        took_s: Seconds of measuring.
        advice: Which device to use; None if nobody has asked.
        traces: By the cell that was traced, in words which operations took the time.
    """

    environment: Mapping[str, Any] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    planned: int = 0
    took_s: float = 0.0
    advice: Advice | None = None
    traces: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
