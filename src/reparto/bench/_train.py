"""Times training steps of a loop.

├ loss ┤ warm-up │ target_steps, timed │ loss │ more steps, timed, until the time is good ┤
         └──────── the same work ──────┘        └── a fast device makes more of these

On a GPU, blocks of steps are timed, with a wait at the end of each. A block counts if the
processor's core was calm, or if the GPU was what it waited for.
"""

from __future__ import annotations

import math
import time

from reparto.bench._captured import CapturedLoop
from reparto.bench._cells import CAPTURED, Cell
from reparto.bench._device import Device, share
from reparto.bench._loop import Loop
from reparto.bench._statistics import interval, median
from reparto.bench._stretches import Stretches
from reparto.bench._subject import Subject
from reparto.spec import Measurement

WARM_UP = 3
TIMED_S = 0.8
GPU_TIMED_S, GPU_MOST_S = 0.3, 0.5  # calm and at all: its times are steadier than a processor's
_BLOCK_S = 0.02  # of GPU work between two waits: waiting itself takes some microseconds
_WAITED = 0.1  # of a block: a processor that asks for work sooner than it is done is in time
_OWN = 0.95  # of the time of asking: if other processes have more of the core, they disturb


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
    loop = (CapturedLoop if cell.form == CAPTURED else Loop)(subject, cell, device)
    loss_first = loop.held_loss()
    device.begin_peak()
    device.watch.begin()
    energy_began = time.perf_counter()
    with device.core.held():
        loop.steps(WARM_UP)
        device.wait()
        clock = Clock(loop, device)
        clock.run(work.target_steps - WARM_UP)
        peak_bytes = device.peak_bytes()
        loss_last = loop.held_loss()
        clock.run(None)
    elapsed_s = time.perf_counter() - energy_began
    seen = device.watch.end()
    step_s = median(clock.times)
    low_s, high_s = interval(clock.times)
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
        num_steps=clock.made,
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
        flags=clock.kept.marked(seen.flags),
        notes=(*seen.notes, *device.core.notes, *clock.kept.notes, *_of_data(subject)),
    )


class Clock:
    """Times steps, block by block.

    Args:
        loop: What makes them.
        device: Where.
    """

    def __init__(self, loop: Loop, device: Device) -> None:
        self._loop, self._device = loop, device
        enough = (GPU_TIMED_S, GPU_MOST_S) if device.is_gpu else (TIMED_S, TIMED_S)
        self.kept = Stretches(*enough)
        self.made = 0
        self._block, self._last_s = 1, 0.0
        self._calm = device.core.calm()

    @property
    def times(self) -> list[float]:
        """Seconds of a step, one number for each block that counts."""
        return self.kept.times or [self._last_s]

    def run(self, count: int | None) -> None:
        """Make steps: so many, or until all that was timed lasts long enough."""
        until = None if count is None else self.made + count
        while self.made < until if until is not None else not self.kept.enough:
            self._stretch(self._block if until is None else min(self._block, until - self.made))
        if count is None and self.kept.extended(self._device.core.patience_s):
            self.run(None)

    def _stretch(self, size: int) -> None:
        began, own_s = time.perf_counter(), time.process_time()
        self._loop.steps(size)
        asked, own_s = time.perf_counter(), time.process_time() - own_s
        self._device.wait()
        ended = time.perf_counter()
        before, self._calm = self._calm, self._device.core.calm()
        took, self._last_s = ended - began, (ended - began) / size
        self.made += size
        calm = (
            before and self._calm and (not self._device.is_gpu or own_s > _OWN * (asked - began))
        )
        counts = calm or ended - asked > _WAITED * took
        if self._device.is_gpu and took < _BLOCK_S / 2:  # too short: waiting would count
            self._block = max(self._block + 1, math.ceil(size * _BLOCK_S / took))
            self.kept.add((), took, counts=counts)
        else:
            self.kept.add((self._last_s,) if size == self._block else (), took, counts=counts)


def _of_data(subject: Subject) -> tuple[str, ...]:
    if subject.source != "model":
        return ()
    return ("random data: the loss says only whether the model can be trained",)
