"""Times a training script by running it, as `reparto run` would. The only place that does.

    cell ── job_of ──► Job ── api.run ──► StepRecords ──► Timed ── row_from ──► Measurement
                       └ `visible`: the script finds the device of the cell, and no other

A further way of running scripts is a further form: one case in `job_of`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from reparto import api
from reparto.bench import _grid, _grid_script, _recipe
from reparto.bench._cells import ACCELERATED, Cell, is_script
from reparto.bench._data import DataSet
from reparto.bench._environment import cpu_name, gpu_names, threads
from reparto.bench._failures import failed
from reparto.bench._statistics import interval, median
from reparto.errors import RepartoError
from reparto.spec import Event, Job, Measurement, Options, RunResult, Step, StepRecord, Work

#: Steps that tell how long one takes, and how long a run is to last then.
PILOT_STEPS, LASTS_S = 20, 3.0
MIN_STEPS, MAX_STEPS = 20, 2000
WARM_UP = 3


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A run of a script, and each of its steps."""

    result: RunResult
    records: tuple[StepRecord, ...]

    def step_times(self) -> list[float]:
        """Seconds of a step: one number for each two successive records after the warm-up."""
        known = [one for one in self.records if one.step >= WARM_UP] or list(self.records)
        pairs = itertools.pairwise(known)
        times = [(b.time_s - a.time_s) / (b.step - a.step) for a, b in pairs if b.step > a.step]
        return times or ([self.result.step_s] if self.result.step_s else [])

    def losses(self) -> list[float]:
        """Of the steps whose loss is known."""
        return [one.loss for one in self.records if one.loss is not None]


class Scripts:
    """Measures cells by running scripts; the number of steps is the same for all of a script.

    Args:
        steps: By script and arguments, what an earlier call has found.
    """

    def __init__(self, steps: dict[str, int]) -> None:
        self.steps = dict(steps)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._data: dict[str, tuple[Path, DataSet]] = {}

    def measure(self, cell: Cell) -> Measurement:
        """Measure one cell; a script that fails is a row that says why.

        Raises:
            KeyboardInterrupt: If the user has stopped it.
        """
        try:
            if cell.source != "script":
                return self._of_grid(cell)
            timed = run_script(job_of(cell, cell.where, cell.args, self._steps_of(cell)), cell)
        except RepartoError as error:
            return failed(cell, error.message)
        return row_from(cell, timed, work_of(cell, timed))

    def close(self) -> None:
        """Remove the scripts that were written."""
        if self._folder is not None:
            self._folder.cleanup()

    def _steps_of(self, cell: Cell) -> int:
        if cell.steps is not None:
            return cell.steps
        key = f"{cell.suite} {cell.model}".strip()
        if key not in self.steps:
            pilot = dataclasses.replace(cell, form="plain", strategy="single", num_workers=1)
            timed = run_script(job_of(pilot, cell.where, cell.args, PILOT_STEPS), pilot)
            times = timed.step_times()
            wanted = math.ceil(LASTS_S / median(times)) if times and median(times) > 0 else 0
            self.steps[key] = max(MIN_STEPS, min(MAX_STEPS, wanted))
        return self.steps[key]

    def _of_grid(self, cell: Cell) -> Measurement:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="reparto-bench-")
        folder = Path(self._folder.name)
        if cell.source not in self._data:
            self._data[cell.source] = _grid_script.write_data(folder, cell.source)
        path, data = self._data[cell.source]
        hidden = _grid.hidden_of(cell.model)
        count = _grid.num_parameters(hidden) if hidden else _grid.cnn_parameters()
        flops = (
            _recipe.grid_flops(hidden, cell.batch_rows)
            if hidden
            else _recipe.cnn_flops(cell.batch_rows)
        )
        steps = _recipe.target_steps(count, flops, cell.batch_rows)
        script = str(_grid_script.write_script(folder))
        args = _grid_script.arguments(cell, path, steps)
        timed = run_script(job_of(cell, script, args, steps), cell)
        used = timed.result.num_samples
        row = row_from(
            cell,
            timed,
            Work(
                suite=cell.suite,
                model=cell.model,
                num_parameters=count,
                num_samples=len(data.x) if used == steps * cell.batch_rows else used,
                batch_rows=timed.result.batch_rows or cell.batch_rows,
                data=data.digest,
                target_steps=timed.result.num_steps,
            ),
        )
        if row.step_s is None:
            return row
        batches = math.ceil(len(data.x) / cell.batch_rows)
        return dataclasses.replace(
            row,
            hidden=hidden,
            flops_a_step=flops,
            epoch_s=row.step_s * batches,
            loss_constant=data.loss_constant,
        )


class _Collector(api.Watcher):
    """Keeps what worker 0 tells of its steps; what the script prints is left out."""

    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def event(self, event: Event) -> None:
        if isinstance(event, Step) and event.rank == 0:
            self.records.append(event.record)


def job_of(cell: Cell, script: str, args: tuple[str, ...], steps: int) -> Job:
    """What is run for a cell.

    Losses are asked for where that costs nothing: on a GPU, asking waits for the step, and an
    accelerated run puts off what nobody asks for.
    """
    shared = cell.strategy != "single"
    told = shared or not (cell.device.startswith("cuda") or cell.form == ACCELERATED)
    return Job(
        script=script,
        args=args,
        workers=cell.num_workers,
        strategy=cell.config.kind if shared else "single",
        settings=cell.config.settings if shared else {},
        threads=None if shared else threads(),
        accelerate="on" if cell.form == ACCELERATED else "off",
        relaxed=cell.relaxed,
        probe=False,
        options=Options(steps=steps, losses=told, discard_writes=True),
    )


def run_script(job: Job, cell: Cell) -> Timed:
    """Run a script, and time its steps.

    Args:
        job: What is run.
        cell: Whose device the script is to find.

    Raises:
        RepartoError: If it cannot be run.
        KeyboardInterrupt: If the user has stopped it.
    """
    collector = _Collector()
    with visible(cell.device):
        result = api.run(job, collector)
    if result.status == "stopped":
        raise KeyboardInterrupt
    return Timed(result=result, records=tuple(collector.records))


@contextlib.contextmanager
def visible(device: str) -> Iterator[None]:
    """Let processes that are started inside see that device only; ``cuda`` is then this one."""
    kind, _, index = device.partition(":")
    name = "CUDA_VISIBLE_DEVICES"
    before = os.environ.get(name)
    if kind != "cuda":
        os.environ[name] = ""
    else:
        given = (before or "").split(",") if before else []
        os.environ[name] = given[int(index or 0)] if given else index or "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def work_of(cell: Cell, timed: Timed) -> Work:
    """What a script has done, as far as it can be seen from outside."""
    result = timed.result
    rows = result.batch_rows or round(result.num_samples / max(1, result.num_steps))
    text = Path(cell.where).read_bytes() + "\0".join(cell.args).encode()
    return Work(
        suite=cell.suite,
        model=cell.model,
        num_parameters=0,
        num_samples=result.num_samples,
        batch_rows=rows,
        data=f"{zlib.crc32(text):08x}",
        target_steps=result.num_steps,
    )


def completed(rows: Sequence[Measurement]) -> list[Measurement]:
    """Rows of scripts with their batch, where another row of the same script knows it.

    One worker runs a script as it stands, and sees no batches in slices that it cuts by hand; the
    batch of all workers is the script's own.
    """
    known = {row.work.suite: row.work.batch_rows for row in rows if row.work.batch_rows}
    return [_with_batch(row, known.get(row.work.suite, 0)) for row in rows]


def _with_batch(row: Measurement, batch_rows: int) -> Measurement:
    if row.work.batch_rows or not batch_rows or not is_script(row.work.suite) or not row.step_s:
        return row
    work = dataclasses.replace(row.work, batch_rows=batch_rows)
    return dataclasses.replace(row, work=work, samples_per_s=batch_rows / row.step_s)


def row_from(cell: Cell, timed: Timed, work: Work) -> Measurement:
    """A run as a row."""
    result = timed.result
    times = timed.step_times()
    if result.failure is not None:
        said = result.failure.message.partition("\n")[0]
        return failed(cell, f"{result.failure.error}: {said}")
    if not times:
        return failed(cell, "the script made too few steps to be timed")
    on_gpu = cell.device.startswith("cuda")
    if on_gpu and result.memory_device == "cpu":
        return failed(cell, "the script did not use the GPU: it never asks for one")
    step_s, (low_s, high_s) = median(times), interval(times)
    losses = timed.losses()
    last = losses[-max(1, min(50, len(losses) // 10)) :]
    return Measurement(
        work=work,
        mode="train",
        form=cell.form,
        device=cell.device,
        device_name=gpu_names().split(",")[0] if on_gpu else cpu_name(),
        threads=0 if on_gpu else threads(),
        dtype=cell.dtype,
        strategy=cell.strategy,
        num_workers=result.num_workers,
        num_steps=result.num_steps,
        step_s=step_s,
        low_s=low_s,
        high_s=high_s,
        samples_per_s=work.batch_rows / step_s if work.batch_rows else None,
        peak_bytes=max(0, result.peak_bytes - result.idle_bytes),
        loss_first=losses[0] if losses else None,
        loss_last=sum(last) / len(last) if last else None,
        notes=result.notes if losses else (*result.notes, "the script told no loss"),
    )
