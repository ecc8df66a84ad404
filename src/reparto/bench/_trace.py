"""Traces a step: a file for Chrome and Perfetto, logs for TensorBoard, and words.

FOLDER/<cell>/step.pt.trace.json    chrome://tracing, ui.perfetto.dev, TensorBoard's profile
FOLDER/<cell>/events.out.tfevents…  tensorboard --logdir FOLDER: graph, loss, seconds of a step
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from reparto.bench._cells import Cell
from reparto.bench._device import Device
from reparto.bench._loop import Loop
from reparto.bench._operations import in_words
from reparto.bench._statistics import median
from reparto.bench._subject import Subject
from reparto.bench._tensorboard import write_logs

TRACE = "step.pt.trace.json"
WARM_UP, LOGGED, TRACED = 3, 20, 1


def trace(subject: Subject, cell: Cell, device: Device, folder: Path) -> tuple[str, ...]:
    """Trace a training step of a model.

    Args:
        subject: The model.
        cell: How it is trained.
        device: Where.
        folder: Where files go; made if it is not there.

    Returns:
        Which operations took the time, in words.
    """
    folder.mkdir(parents=True, exist_ok=True)
    loop = Loop(subject, cell, device)
    loop.steps(WARM_UP)
    losses, times = [], []
    loop.model.train()
    with device.precision(cell.dtype):
        for _ in range(LOGGED):
            began = time.perf_counter()
            losses.append(loop.step().item())
            times.append(time.perf_counter() - began)
    with profiler() as seen:
        loop.steps(TRACED)
        device.wait()
    scalars = {"loss": losses, "step_s": times}
    example = subject.x[: cell.batch_rows].to(device.torch)
    remark = write_logs(folder, scalars, loop.model.eval(), example)
    words = finish(seen, TRACED, median(times), device.torch.type, folder)
    return (*words, *([remark] if remark else []))


def profiler() -> profile:
    """A profiler of all that computes here."""
    kinds = [ProfilerActivity.CPU]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        kinds.append(ProfilerActivity.CUDA)
    return profile(activities=kinds, record_shapes=True)


def finish(seen: profile, steps: int, step_s: float, device: str, folder: Path) -> tuple[str, ...]:
    """Write what a profiler has seen, and say it in words."""
    seen.export_chrome_trace(str(folder / TRACE))
    times = {
        str(event.key): micros / 1e6 / steps
        for event in seen.key_averages()
        if (micros := _own_micros(event, device)) > 0
    }
    return in_words(times, step_s, device)


def _own_micros(event: Any, device: str) -> float:
    """Of the operation itself, without what it calls. On a GPU only kernels and copies count."""
    if not device.startswith("cuda"):
        return float(event.self_cpu_time_total)
    if getattr(event, "is_user_annotation", False):
        return 0.0  # a name for a stretch of time, such as that of the optimizer
    if "CUDA" not in str(getattr(event, "device_type", "")):
        return 0.0  # its kernels are events of their own
    return float(event.self_device_time_total)
