"""ScriptWork: candidates are runs of the user's own script; the objective is what it prints.

    reach(1/9) ── the run is polled until it is a ninth as long as the longest before ──► score
    reach(1/3) ── …                                                                   ──► score
    reach(1)   ── … until it has ended by itself                                      ──► score
    close      ── of a run that goes on: all its workers end after the same step

A run whose length nobody knows yet is not given up: what it was worth at each rung is told once it
has ended.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from reparto import engines
from reparto.engines import Engine
from reparto.errors import UsageError
from reparto.search._script_history import Point
from reparto.search._script_run import ScriptRun, TrialError
from reparto.search._script_trials import Trials, prepare_trials
from reparto.search._work import Attempt, Fitted, Reached, Work
from reparto.spec import Candidate, Rung, RungScore, SearchRequest


class ScriptWork(Work):
    """Runs a script; one for each run at the same time, in a thread of its own.

    Args:
        request: With a script.
        folder: Of the search.
        trials: What all runs have in common; decided by `open` if not given.
    """

    def __init__(
        self, request: SearchRequest, folder: str | Path, trials: Trials | None = None
    ) -> None:
        self._request, self._folder = request, Path(folder)
        self._trials = trials
        self._engine: Engine | None = None
        self._is_stopped = threading.Event()

    def open(self, threads: int) -> None:
        """Get the engine ready."""
        if self._trials is None:
            self._trials = prepare_trials(self._request, self._folder)
        job = self._trials.job
        self._engine = engines.build(job.engine, address=job.address)

    def attempt(self, candidate: Candidate, seed: int) -> Attempt:
        """Start a run; its seed is that of the search, the same for each candidate."""
        assert self._trials is not None and self._engine is not None, "open() comes first"
        run = ScriptRun(self._trials, self._engine, candidate)
        return _ScriptAttempt(self._trials, run, self._is_stopped)

    def fit(self, candidate: Candidate, seed: int, folder: str) -> Fitted:
        """Refuse: what a script trains, it saves by itself.

        Raises:
            UsageError: Always.
        """
        raise UsageError("a script saves its model by itself; see the folder of its run")

    def close(self) -> None:
        """Let go of the engine."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def stop(self) -> None:
        """End the run that goes on in another thread, on all its workers, at once."""
        self._is_stopped.set()


class _ScriptAttempt(Attempt):
    def __init__(self, trials: Trials, run: ScriptRun, is_stopped: threading.Event) -> None:
        self._trials, self._run, self._is_stopped = trials, run, is_stopped
        self._status, self._failure = "pruned", ""
        self._judged: Point | None = None
        self._since = time.monotonic()

    def reach(self, rung: Rung) -> Reached:
        try:
            while not self._has_come_to(rung):
                self._advance()
            self._run.check()
        except BaseException as error:
            self._status = "stopped" if self._is_stopped.is_set() else "failed"
            self._failure = str(error)
            raise
        return self._reached(rung)

    def close(self) -> None:
        """End the run, if it goes on: all workers after the same step."""
        try:
            self._run.stop(now=self._is_stopped.is_set())
            while self._run.result is None:
                if self._is_stopped.is_set():
                    self._run.stop(now=True)
                self._run.advance()
        finally:
            self._run.wind_up(self._status, self._failure)

    def _advance(self) -> None:
        if self._is_stopped.is_set():
            raise TrialError("it was stopped")
        self._run.advance()
        if self._run.result is not None and self._run.result.status == "done":
            self._whole()
        self._run.check()

    def _whole(self) -> None:
        history = self._run.history
        if history.points:
            self._trials.lengths.told(history.unit, history.at)

    def _has_come_to(self, rung: Rung) -> bool:
        if self._run.result is not None:
            return True
        if rung.share >= 1.0 or not self._run.history.points:
            return False
        part = self._trials.lengths.part(self._run.history.unit, rung.share)
        return part is not None and self._run.history.at >= part

    def _reached(self, rung: Rung) -> Reached:
        run, history = self._run, self._run.history
        is_over = run.result is not None
        if rung.share >= 1.0:
            point = history.points[-1]
        elif is_over:
            point = history.point_at(rung.share * history.at)
        else:
            part = self._trials.lengths.part(history.unit, rung.share)
            point = history.point_at(history.at if part is None else part)
        is_new, self._judged = point is not self._judged, point
        now = time.monotonic()
        fit_s, self._since = now - self._since, now
        score = RungScore(
            rung=rung, score=point.value, scores={self._trials.metric: point.value}, fit_s=fit_s
        )
        if rung.share < 1.0:
            return Reached(score, is_settled=is_over or not is_new)
        self._status = "done"
        run.wind_up(self._status)
        return Reached(score, size_bytes=run.size_bytes, notes=self._notes(), is_settled=True)

    def _notes(self) -> tuple[str, ...]:
        folder = os.path.relpath(self._run.folder, self._trials.cwd)
        return (f"to train with these settings: {self._run.command}", f"its files: {folder}")
