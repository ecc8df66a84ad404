"""Times training steps: the plain loop, as people write it, with its data on the host.

├ loss ┤ warm-up │ target_steps, timed │ loss │ more steps, timed, until the time is good ┤
         └──────── the same work ──────┘        └── a fast device makes more of these
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from reparto.bench._cells import Cell
from reparto.bench._data import HELD
from reparto.bench._device import Device, share
from reparto.bench._statistics import interval, median
from reparto.bench._subject import Subject
from reparto.spec import Measurement

WARM_UP = 3
TIMED_S = 0.8
_BLOCK_S = 0.02  # of GPU work between two waits: waiting itself takes some microseconds
_CHUNK = 256


class Loop:
    """Trains a model, batch by batch.

    Args:
        subject: The model and its data.
        cell: How.
        device: Where.
    """

    def __init__(self, subject: Subject, cell: Cell, device: Device) -> None:
        self._x, self._y, self._rows = subject.x, subject.y, cell.batch_rows
        if cell.batch_rows > len(self._x):
            raise ValueError(f"there are only {len(self._x)} samples")
        self._device, self._dtype = device, cell.dtype
        self.model: nn.Module = subject.model(device.torch)
        self._optimizer = torch.optim.Adam(self.model.parameters(), lr=subject.rate)
        self._batch_of = self._batches()

    def step(self) -> Tensor:
        """Make one step."""
        x, y = next(self._batch_of)
        x, y = x.to(self._device.torch), y.to(self._device.torch)
        loss = nn.functional.mse_loss(self.model(x), y)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss

    def steps(self, count: int) -> None:
        """Make several."""
        self.model.train()
        with self._device.computing(self._dtype):
            for _ in range(count):
                self.step()

    def held_loss(self) -> float:
        """The mean loss of the held samples, as it is now."""
        self.model.eval()
        total = 0.0
        with torch.inference_mode(), self._device.computing(self._dtype):
            for first in range(0, min(HELD, len(self._x)), _CHUNK):
                last = min(first + _CHUNK, HELD, len(self._x))
                x = self._x[first:last].to(self._device.torch)
                y = self._y[first:last].to(self._device.torch)
                loss = nn.functional.mse_loss(self.model(x).float(), y)
                total += loss.item() * (last - first)
        return total / min(HELD, len(self._x))

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            for first in range(0, len(self._x) - self._rows + 1, self._rows):
                part = slice(first, first + self._rows)
                yield self._x[part], self._y[part]


def train(subject: Subject, cell: Cell, device: Device, peak_flops: float) -> Measurement:
    """Measure the training of a model.

    Args:
        subject: The model.
        cell: How it is to be trained.
        device: Where.
        peak_flops: What the device can do in a second; 0.0 if not known.
    """
    work = subject.work(cell)
    device.tidy()
    loop = Loop(subject, cell, device)
    loss_first = loop.held_loss()
    device.begin_peak()
    device.watch.begin()
    energy_began = time.perf_counter()
    loop.steps(WARM_UP)
    device.wait()
    times, made, spent_s = _timed(loop, device, work.target_steps - WARM_UP)
    peak_bytes = device.peak_bytes()
    loss_last = loop.held_loss()
    more, more_made, _ = _timed(loop, device, None, already_s=spent_s)
    elapsed_s = time.perf_counter() - energy_began
    seen = device.watch.end()
    num_steps = made + more_made
    step_s = median([*times, *more])
    low_s, high_s = interval([*times, *more])
    flops = subject.flops(cell.batch_rows, train=True)
    energy = seen.energy_j * step_s / elapsed_s if seen.energy_j is not None else None
    return Measurement(
        work=work,
        hidden=subject.hidden,
        mode="train",
        form=cell.form,
        device=cell.device,
        device_name=device.label,
        threads=device.threads,
        dtype=cell.dtype,
        num_steps=num_steps,
        step_s=step_s,
        low_s=low_s,
        high_s=high_s,
        epoch_s=step_s * math.ceil(work.num_samples / cell.batch_rows),
        samples_per_s=cell.batch_rows / step_s,
        flops_a_step=flops,
        share_of_peak=share(flops / step_s, peak_flops),
        peak_bytes=peak_bytes,
        energy_j=energy,
        loss_first=loss_first,
        loss_last=loss_last,
        loss_constant=subject.data.loss_constant,
        flags=seen.flags,
        notes=(*seen.notes, *_of_data(subject)),
    )


def _timed(
    loop: Loop, device: Device, count: int | None, already_s: float = 0.0
) -> tuple[list[float], int, float]:
    """Time steps: so many, or until all that was timed lasts long enough.

    Returns:
        Seconds of a step, one number for each block of steps between two waits; how many
        steps; and all the time that was timed.
    """
    times: list[float] = []
    if count is None and already_s >= TIMED_S:
        return times, 0, already_s
    block, made, spent, took = 1, 0, already_s, 0.0
    while made < count if count is not None else spent < TIMED_S:
        size = min(block, count - made) if count is not None else block
        began = time.perf_counter()
        loop.steps(size)
        device.wait()
        took = time.perf_counter() - began
        made += size
        spent += took
        if device.is_gpu and took < _BLOCK_S / 2:  # too short: waiting would count
            block = max(block + 1, math.ceil(size * _BLOCK_S / took))
        elif size == block:
            times.append(took / size)
    return times or [took / size], made, spent


def _of_data(subject: Subject) -> tuple[str, ...]:
    if subject.source != "model":
        return ()
    return ("random data: the loss says only whether the model can be trained",)
