"""The whole path of a search: request ──► setup ──► conduct ──► finish ──► report."""

from __future__ import annotations

import dataclasses
import math
import os
import platform
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reparto.errors import UsageError
from reparto.search._again import anchored, write_again
from reparto.search._answers import Answers
from reparto.search._bill import Ledger
from reparto.search._choose import best_of, whole_fit_s
from reparto.search._conduct import Conductor, Limits, Parts
from reparto.search._crew import Crew
from reparto.search._evidence import evidence_of
from reparto.search._finish import REPORT_S, Finish, Finished, Question, finish_s, last_s, versions
from reparto.search._fit_all import FitAll
from reparto.search._limits import limits_of
from reparto.search._prune import Pruner
from reparto.search._resumed import check_same, with_limits
from reparto.search._rows import Answer
from reparto.search._setup import Setup, num_cores, table_setup
from reparto.search._store import ID_FILE, Kept, Store, check_storage, locked
from reparto.search._suggest import Suggester
from reparto.search._watch import SearchWatcher
from reparto.spec import Evaluation, SearchRequest, SearchResult


def search(
    request: SearchRequest,
    folder: str | Path,
    watcher: SearchWatcher | None = None,
    *,
    resume: bool = False,
) -> SearchResult:
    """Find the best technique and settings for what the request asks.

    Args:
        request: What is asked. When resuming, only its limits count: time, trials, cost, workers;
            data or a script that it names have to be those of the search that is gone on with.
        folder: Where all that is found is kept.
        watcher: Is told what happens.
        resume: Whether to go on with the search of this folder.

    Returns:
        What was found, also after Ctrl-C.

    Raises:
        UsageError: If the request or the data cannot be.
        EngineError: If no worker can be started.
    """
    return _Search(request, Path(folder), watcher or SearchWatcher(), resume=resume).run()


class _Search:
    def __init__(
        self, request: SearchRequest, folder: Path, watcher: SearchWatcher, *, resume: bool
    ) -> None:
        self._began, self._watcher, self._folder = time.monotonic(), watcher, folder
        self._request, self._resumes = request, resume
        self._earlier: Kept | None = None
        self._store: Store
        self._answers = Answers(folder / "answers")
        self._notes: list[str] = []
        self._trouble, self._is_told = "", False

    def run(self) -> SearchResult:
        with ExitStack() as closing:
            if self._resumes:
                self._recall(closing)
            _check_cost(self._request)
            setup = self._setup()
            closing.callback(setup.closing.close)
            # Whoever repeats it has other limits, and these stay as they are.
            self._request = dataclasses.replace(
                self._request,
                folds=setup.asked_folds or self._request.folds,
                rows=setup.asked_rows or self._request.rows,
            )
            if not self._resumes:  # nothing is touched before it is known that this can be
                if self._request.storage:
                    check_storage(self._request.storage, self._folder)
                self._put_aside()
                self._open(closing)
            self._notes[:0] = self._request.notes
            return self._searched(setup)

    def _open(self, closing: ExitStack) -> None:
        self._store = Store.open(self._request.storage, self._folder)
        closing.callback(self._close)

    def _close(self) -> None:
        try:
            self._store.close()
        except UsageError as error:
            if not self._is_told:
                raise
            # What was found is in the folder, and is not thrown away for that.
            self._watcher.note(f"--resume will not know how it ended: {error.message}")

    def _recall(self, closing: ExitStack) -> None:
        if (self._folder / ID_FILE).exists():
            self._open(closing)
            self._earlier = self._store.kept()
        if self._earlier is None:
            raise UsageError(
                f"{self._folder} holds no search to go on with", remedy="leave --resume out"
            )
        check_same(self._earlier.request, self._request, self._folder)
        self._request = with_limits(self._earlier.request, self._request)
        self._began -= self._earlier.used_s

    def _now(self) -> float:
        """Seconds since the search began, its earlier parts included."""
        return time.monotonic() - self._began

    def _put_aside(self) -> None:
        whole = Path(os.path.abspath(self._folder))
        if not (whole / ID_FILE).exists():
            return
        if Path.cwd().is_relative_to(whole):
            raise UsageError(
                f"{whole} holds an earlier search, and is where you are",
                remedy="--resume goes on with it, --out FOLDER names another folder",
            )
        # What another search has found is not thrown away without a word; one that is still
        # writing keeps its folder.
        with locked(whole):
            since = int(time.time())
            while (old := whole.with_name(f"{whole.name}.{since}")).exists():
                since += 1
            whole.rename(old)
        self._notes.append(f"an earlier search is kept in {old.name}")

    def _setup(self) -> Setup:
        request = self._request
        if request.script:
            from reparto.search._other_setups import script_setup

            return script_setup(request, self._folder)
        if request.domain == "function":
            from reparto.search._other_setups import function_setup

            return function_setup(request)
        if not request.data:
            raise UsageError(
                "nothing to search", remedy="name a table, a request, or --script train.py"
            )
        if request.engine == "spark":
            from reparto.search._other_setups import spark_setup

            return spark_setup(request)
        if self._earlier is not None and self._earlier.facts is not None:
            # Its rows and folds stay as they were, however much time it has now.
            request = dataclasses.replace(request, time_s=None, rows=self._earlier.facts.num_rows)
        return table_setup(request)

    def _searched(self, setup: Setup) -> SearchResult:
        request, earlier = self._request, self._earlier
        limits, told = limits_of(request, setup, earlier.used_s if earlier else 0.0)
        self._notes += told
        if earlier is None:
            self._store.begin(anchored(request), setup.facts)
        elif (earlier.facts and earlier.facts.digest) != (setup.facts and setup.facts.digest):
            raise UsageError(
                f"{request.data} has changed since the search began",
                remedy="search anew, in another folder: --out FOLDER",
            )
        else:
            self._check_time(setup, limits, earlier.evaluations)
        kinds = tuple(ground.kind for ground in setup.grounds)
        if setup.facts is not None:
            self._watcher.read(setup.facts, kinds, setup.split)
        for note in [*self._notes, *setup.notes]:
            self._watcher.note(note)
        ledger = Ledger(request.price_per_hour, earlier.bill if earlier else None)
        crew = setup.crew()
        try:
            conductor = self._conductor(setup, crew, ledger, limits)
            ended = conductor.run()
            finished = self._finished(setup, crew, ledger, conductor, limits, ended)
        finally:
            crew.close()
        return self._told(setup, ledger, conductor.evaluations, finished, ended)

    def _check_time(self, setup: Setup, limits: Limits, earlier: Sequence[Evaluation]) -> None:
        """What was found before is not to be told again without its model."""
        question = self._question(setup)
        needed_s = finish_s(earlier, question, 0.0, setup.num_folds) if question else 0.0
        if self._now() + needed_s >= limits.time_s:
            raise UsageError(
                f"{self._folder}: of {limits.time_s:.3g} s, {self._now():.3g} s are used, and the "
                "rest would not do",
                remedy="--time gives it more; it counts from the beginning",
            )

    def _question(self, setup: Setup) -> Question | None:
        if setup.facts is None:
            return None
        request = self._request
        return Question(
            facts=setup.facts,
            metric=setup.metric,
            higher_is_better=setup.higher_is_better,
            truths=setup.truths,
            test=setup.test,
            may_combine=request.ensemble
            and bool(setup.truths)
            and not _is_single(request)
            # There the truths may be a sample, and members are weighed on all tested rows.
            and request.engine != "spark",
        )

    def _conductor(self, setup: Setup, crew: Crew, ledger: Ledger, limits: Limits) -> Conductor:
        request, question = self._request, self._question(setup)
        earlier = self._earlier.evaluations if self._earlier else ()
        suggester = Suggester(
            setup.grounds,
            request.search,
            higher_is_better=setup.higher_is_better,
            seed=request.seed,
            candidates=request.candidates,
        )
        suggester.recall(earlier)
        time_s = limits.time_s if math.isfinite(limits.time_s) else 0.0

        def finishing(evaluations: Sequence[Evaluation]) -> float:
            if question is None:
                return min(REPORT_S, 0.2 * time_s)
            start_s = conductor.start_s * crew.restart if time_s else 0.0
            return finish_s(evaluations, question, time_s, setup.num_folds, start_s)

        def keep(evaluation: Evaluation, answers: Sequence[Answer]) -> None:
            if evaluation.status == "done" or len(answers) > 0:
                self._answers.keep(evaluation.candidate.number, answers)
            self._store.add(evaluation)
            self._store.progress(self._now(), ledger.bill(self._now()))
            self._tell_trouble()

        parts = Parts(
            crew=crew,
            suggester=suggester,
            pruner=Pruner(higher_is_better=setup.higher_is_better)
            if request.search == "asha" and not request.candidates
            else None,
            rungs=lambda kind: setup.rungs("grid" if request.candidates else request.search, kind),
            ledger=ledger,
            clock=self._now,
            finish_s=finishing,
            keep=keep,
            watcher=self._watcher,
        )
        conductor = Conductor(
            parts,
            limits,
            min_workers=request.min_workers,
            max_workers=setup.max_workers,
            seed=request.seed,
            higher_is_better=setup.higher_is_better,
            earlier=[one for one in earlier if one.status != "stopped"],
        )
        return conductor

    def _finished(
        self,
        setup: Setup,
        crew: Crew,
        ledger: Ledger,
        conductor: Conductor,
        limits: Limits,
        ended: str,
    ) -> Finished:
        question = self._question(setup)
        if question is None:
            best = conductor.best
            if best is None:
                return Finished(best=None)
            return Finished(best=best.candidate.number, notes=list(best.notes))
        idle, most = conductor.workers(), setup.max_workers
        paid_s = math.inf
        if math.isfinite(limits.cost):  # no more workers than are paid for already
            most = max(1, len(idle))
            left = limits.cost - ledger.cost_at(self._now())
            paid_s = left / (most * self._request.price_per_hour / 3600.0)
        fits_s = self._fits_s(setup, conductor.evaluations)
        end_s = last_s(self._now(), limits.time_s, fits_s, paid_s)
        fit = FitAll(crew, idle, most, ledger, self._now, self._request.seed)
        finish = Finish(question, self._answers, self._folder, self._now, self._watcher)
        try:
            return finish.run(
                conductor.evaluations,
                fit,
                most,
                end_s,
                only_one=ended == "interrupted",
            )
        except KeyboardInterrupt:
            best = conductor.best
            return Finished(
                best=None if best is None else best.candidate.number,
                notes=["stopped again while the best was being trained: there is no model"],
            )
        finally:
            fit.release()

    def _fits_s(self, setup: Setup, evaluations: Sequence[Evaluation]) -> float:
        """How long training on all rows may well take: of the best, or of all that are named."""
        best = best_of(evaluations, higher_is_better=setup.higher_is_better)
        found = evaluations if self._request.candidates else [best] if best else []
        return sum(whole_fit_s(one, setup.num_folds) for one in found)

    def _tell_trouble(self) -> None:
        told = ""
        if self._store.trouble:
            told = f"candidates cannot be kept now, which is tried again: {self._store.trouble}"
        elif self._answers.trouble:
            told = f"what candidates answer cannot be kept for ensembles: {self._answers.trouble}"
        if told and told != self._trouble:
            self._watcher.note(told)
        self._trouble = told

    def _told(
        self,
        setup: Setup,
        ledger: Ledger,
        evaluations: Sequence[Evaluation],
        finished: Finished,
        ended: str,
    ) -> SearchResult:
        from reparto.search._report import write_report

        evaluations = _with_made(evaluations, finished.made)
        result = SearchResult(
            request=self._request,
            metric=setup.metric,
            higher_is_better=setup.higher_is_better,
            facts=setup.facts,
            num_folds=setup.num_folds,
            split=setup.split,
            evaluations=tuple(evaluations),
            best=finished.best,
            model=finished.model,
            baseline=setup.baseline,
            bill=ledger.bill(self._now()),
            took_s=self._now(),
            ended=ended,
            environment=_environment(),
            command=write_again(self._request, evaluations, finished.best, self._folder),
            notes=tuple([*self._notes, *setup.notes, *finished.notes]),
        )
        self._store.progress(self._now(), result.bill)
        self._watcher.finishing("writing the report")
        write_report(result, evidence_of(setup, finished), self._folder)
        self._watcher.ended(result)
        self._is_told = True
        return result


def _is_single(request: SearchRequest) -> bool:
    return len(request.candidates) == 1 or request.domain == "clustering"


def _with_made(evaluations: Sequence[Evaluation], made: Evaluation | None) -> list[Evaluation]:
    by_number = {one.candidate.number: one for one in evaluations}
    if made is not None:
        by_number[made.candidate.number] = made
    return [by_number[number] for number in sorted(by_number)]


def _check_cost(request: SearchRequest) -> None:
    if request.cost is not None and not request.price_per_hour:
        raise UsageError(
            "what it may cost is given, and not what a worker costs", remedy="--price 0.40/h"
        )


def _environment() -> dict[str, Any]:
    return {
        "host": platform.node(),
        "cores": num_cores(),
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions(),
    }
