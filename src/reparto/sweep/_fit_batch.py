"""The largest batch that fits each device: a few short runs on each, one after the other.

    fit_batch ── a Spot a device ──► next_attempt ──► run_with ──► FitPoint ─┐ ──► DeviceFit
                                          ▲                                  │
                                          └── plan._fit: what comes next? ◄──┘

What the script writes is discarded. A run that would take more memory than it may ends itself, so
a size that does not fit is a finding and no crash; see `runtime._memory`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import closing
from typing import Literal

from reparto import api, engines
from reparto.engines import Engine
from reparto.errors import RefusedError, UsageError
from reparto.measure import unlike_gpus
from reparto.plan import (
    MARGIN,
    MAX_ROWS,
    SMALLEST,
    Attempt,
    fit_line,
    is_measured,
    next_attempt,
    plan_run,
    predicted_rows,
    recommended,
)
from reparto.spec import Cluster, DeviceFit, FitPoint, FitResult, Job, Program, RunResult
from reparto.sweep._fit_run import LIMIT_S, Outcome, SettledEngine, Spot, option_rows, run_with

#: On one device; two and one to confirm will mostly do.
MAX_RUNS = 12
#: Where the script's own size is not known, or is too large.
START_ROWS = 8


class FitWatcher(api.Watcher):
    """Is told what happens. Does nothing; override what you want to see."""

    def tries(self, spot: Spot, rows: int | None, predicted_bytes: int) -> None:
        """A run begins: with that many rows, None for the script's own."""

    def tried(self, point: FitPoint) -> None:
        """It has ended; with 0 rows where nobody knows how many there were."""


def fit_batch(
    job: Job, *, vary: str = "", memory_bytes: int = 0, watcher: FitWatcher | None = None
) -> FitResult:
    """Find the largest batch for each device.

    Args:
        job: The script, its arguments, and the engine; one worker is run at a time.
        vary: The script's own option whose number is the batch, such as ``--batch-size``; empty
            to give the batches of its training loaders another size.
        memory_bytes: What a worker may have on each device; 0 for what is free there.
        watcher: Is told what happens.

    Returns:
        One answer a device.

    Raises:
        UsageError: If the script has no loader that can be told, and no option is named.
        RefusedError: If the script distributes itself.
        ScriptError: If the script fails for another reason than memory.
        EngineError: If a worker cannot be started.

    Example:
        >>> fit_batch(Job(script="train.py"), memory_bytes=2 << 30)  # doctest: +SKIP
    """
    watcher = watcher or FitWatcher()
    if job.engine == "peers":
        raise UsageError(
            "the engine peers runs on several machines at once",
            remedy="fit the batch on each of them by itself, with --engine local",
        )
    program = _program(job, watcher)
    with closing(engines.build(job.engine, address=job.address, ship=job.ship)) as engine:
        spots = list(_spots(job, program, engine, engine.cluster()))
        spots = [dataclasses.replace(s, vary=vary, memory_bytes=memory_bytes) for s in spots]
        devices = tuple(_Fitting(spot, watcher).run() for spot in spots)
    return FitResult(script=job.script, args=job.args, vary=vary, margin=MARGIN, devices=devices)


def _program(job: Job, watcher: FitWatcher) -> Program:
    """The script as it is: alone, nothing is shared out."""
    result = api.convert(job.script, job.args)
    watcher.found(result)
    program = result.program
    if program.launch != "reparto":
        raise RefusedError(
            f"{job.script} distributes itself, so its batches cannot be told from here",
            remedy="fit the batch of the same training without its own distribution",
        )
    files = tuple(dataclasses.replace(file, converted=file.original) for file in program.files)
    return dataclasses.replace(program, files=files)


def _spots(job: Job, program: Program, engine: Engine, cluster: Cluster) -> Iterator[Spot]:
    """One for each host, or for each kind of its GPUs."""
    for host in cluster.hosts:
        alone = Cluster(hosts=(host,))
        plan = plan_run(dataclasses.replace(job, workers=1, strategy="single"), alone, program)
        # Elsewhere a worker gets the GPU that the engine gives it.
        is_here = engine.kind == "local" and host.num_gpus > 1
        gpus = unlike_gpus() if is_here and plan.device == "cuda" else ()
        for gpu in gpus or ("",):
            seated = SettledEngine(engine, {"CUDA_VISIBLE_DEVICES": gpu}) if gpu else engine
            yield Spot(engine=seated, cluster=cluster, program=program, plan=plan)


class _Fitting:
    """Finds the largest batch for one device."""

    def __init__(self, spot: Spot, watcher: FitWatcher) -> None:
        self._spot, self._watcher = spot, watcher
        self._points: list[FitPoint] = []
        self._last: RunResult | None = None  # of those that fitted
        self._rows_now = self._peak_now = self._loader_rows = 0
        self._limit = self._free = 0
        self._is_late = self._is_whole = False
        self._notes: list[str] = []

    def run(self) -> DeviceFit:
        self._try_own()
        while len(self._points) < MAX_RUNS and (attempt := self._next()) is not None:
            self._try(attempt)
            if self._is_late or self._is_whole:
                break
        return self._answer()

    def _next(self) -> Attempt | None:
        if not self._points:
            return Attempt(rows=START_ROWS, scale=self._least_scale)
        if self._limit > self._within and self._is_measured(self._within):
            return None  # there is not as much memory here as is planned for
        return next_attempt(
            self._points,
            idle_bytes=self._idle,
            limit_bytes=self._within,
            has_heap=self._has_heap,
        )

    def _is_measured(self, limit: int) -> bool:
        return is_measured(self._points, idle_bytes=self._idle, limit_bytes=limit)

    @property
    def _has_heap(self) -> bool:
        where = self._last.memory_device if self._last is not None else self._spot.plan.device
        return where == "cpu"

    @property
    def _least_scale(self) -> float:
        return SMALLEST if self._has_heap else 1.0

    @property
    def _within(self) -> int:
        """What can be tried here."""
        return min(self._limit, self._free) or self._limit or self._free

    @property
    def _idle(self) -> int:
        return self._last.idle_bytes if self._last is not None else 0

    # ---------------------------------------------------------------------------- runs

    def _try_own(self) -> None:
        """The script as it is: how large are its batches, and do they fit?"""
        self._watcher.tries(self._spot, None, 0)
        scale = self._least_scale
        outcome = run_with(self._spot, None, self._watcher, scale=scale)
        result, vary = outcome.result, self._spot.vary
        self._limit = self._spot.memory_bytes
        self._rows_now = option_rows(self._spot.program.args, vary) if vary else 0
        if outcome.fits:
            self._loader_rows = result.batch_rows
            if not vary and not result.batch_rows:
                raise _no_loader()
            self._rows_now = self._rows_now or result.batch_rows
            self._peak_now = result.peak_bytes
        self._keep(outcome, Attempt(rows=self._rows_now, scale=scale), 0)

    def _try(self, attempt: Attempt) -> None:
        rows = attempt.rows
        line = fit_line(self._points)
        predicted = line.at(rows) if line is not None else 0
        self._watcher.tries(self._spot, rows, predicted)
        outcome = run_with(self._spot, rows, self._watcher, scale=attempt.scale)
        seen = outcome.result.batch_rows if outcome.fits else 0
        if outcome.fits and not self._spot.vary and not seen:
            raise _no_loader()
        if 0 < seen < rows:
            self._take_all(seen)
            attempt = dataclasses.replace(attempt, rows=seen)
        self._keep(outcome, attempt, predicted)

    def _take_all(self, rows: int) -> None:
        """A loader has not yielded as many rows as the script was told to take."""
        if rows == self._loader_rows:
            raise UsageError(
                f"{self._spot.vary} changes nothing: the batches still have {rows} rows",
                remedy="name the option that sets them, or leave out --vary",
            )
        self._is_whole = True
        self._notes.append(f"the data set has {rows} rows, and a batch of all of them fits")

    def _keep(self, outcome: Outcome, attempt: Attempt, predicted: int) -> None:
        result, rows = outcome.result, attempt.rows
        point = FitPoint(
            rows=rows,
            peak_bytes=result.peak_bytes if outcome.fits else 0,
            fits=outcome.fits,
            predicted_bytes=predicted,
            scale=attempt.scale,
            took_s=result.total_s,
        )
        self._watcher.tried(point)
        if outcome.is_late:
            self._is_late = True
            self._notes.append(f"{rows} rows took longer than {LIMIT_S / 60:g} minutes to try")
            return
        if outcome.fits:
            self._last = result
            self._free = self._free or result.free_bytes
            self._limit = self._limit or self._free
        if rows:
            self._points.append(point)

    # -------------------------------------------------------------------------- answer

    def _answer(self) -> DeviceFit:
        line, last = fit_line(self._points), self._last
        best = recommended(self._points, self._limit) or FitPoint(rows=0)
        is_planned = self._limit > self._free > 0
        status: Literal["confirmed", "unlimited", "unconfirmed"] = "confirmed"
        if line is not None and (is_planned or self._is_late):
            status = "unconfirmed"
            rows = max(best.rows, predicted_rows(self._points, self._limit))
            best = FitPoint(rows=rows, predicted_bytes=line.at(rows))
            if is_planned:
                self._notes.append(
                    f"{self._free / 2**30:.1f} GiB are free there, so this is not tried"
                )
        elif self._is_late or self._is_whole or self._is_unlimited(best):
            status = "unlimited"
            tried = [point for point in self._points if point.fits]
            best = max(tried, key=lambda point: point.rows, default=best)
        if not best.rows:
            self._notes.append("not even one row fits")
        elif status == "unlimited" and not self._is_whole:
            self._notes.append("memory is not what limits the batch: more may fit")
        elif len(self._points) == MAX_RUNS:
            self._notes.append("memory grows unevenly with the batch: a little more may fit")
        return DeviceFit(
            host=self._spot.plan.placement[0],
            device=last.memory_device if last is not None else self._spot.plan.device,
            limit_bytes=self._limit,
            idle_bytes=self._idle,
            rows_now=self._rows_now,
            peak_now_bytes=self._peak_now,
            base_bytes=round(line.base_bytes) if line is not None else 0,
            row_bytes=line.row_bytes if line is not None else 0.0,
            rows=best.rows,
            rows_at_limit=line.rows_at(self._limit) if line is not None else 0,
            predicted_bytes=best.predicted_bytes,
            peak_bytes=best.peak_bytes,
            status=status,
            points=tuple(self._points),
            notes=(*self._notes, *(last.notes if last is not None else ())),
        )

    def _is_unlimited(self, best: FitPoint) -> bool:
        if all(point.fits for point in self._points) and not self._is_measured(self._limit):
            return True
        return best.rows >= MAX_ROWS


def _no_loader() -> UsageError:
    return UsageError(
        "the script trains without a DataLoader that makes its batches, so their size cannot be "
        "changed from here",
        remedy="name the script's own option for it: --vary batch-size; "
        "or --vary=-b, --vary batch_size=",
    )
