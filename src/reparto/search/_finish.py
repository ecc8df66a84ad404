"""The end of a search over a table: choose, train on all rows, test, save.

evaluations ── choose ──► one candidate, or an ensemble
                          │ FitAll: workers train its members on all rows, until it is too late
                          ▼
                  model.new/ ── renamed when whole ──► model/
"""

from __future__ import annotations

import dataclasses
import math
import platform
import shutil
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from reparto._version import __version__
from reparto.search._answers import Answers
from reparto.search._choose import Choice, best_of, combined, whole_fit_s
from reparto.search._ensemble import mixed
from reparto.search._fit_all import FitAll
from reparto.search._model import About, Member, Model, write_about
from reparto.search._rows import Answer, Rows, Vector
from reparto.search._watch import SearchWatcher
from reparto.search._work import Fitted
from reparto.search.metrics import scores_of
from reparto.spec import Evaluation, FoundModel, TableFacts

#: To let go of the crew, and to write the report, takes about so long.
REPORT_S = 2.0
#: Training on all rows may take so much longer than is thought.
MARGIN = 1.3
#: Saving a model, and finding out what matters to it, takes so long.
SAVING_S = 1.0
#: Where there is no limit, it may take so much longer; and so many seconds in any case.
PATIENCE, LEAST_S = 4.0, 30.0
#: The best one alone has to be better than an ensemble by so many standard errors.
SURE = 2.0
#: Of the time, so much is for an ensemble, but at most so many seconds.
SHARE, MOST_S = 0.2, 40.0
#: And at most so many times what the best one alone needs: on small tables that is little.
TIMES = 2.5


@dataclass(frozen=True)
class Question:
    """What was searched.

    Attributes:
        facts: Of the table.
        metric: By which candidates are ranked.
        higher_is_better: Of that metric.
        truths: Of each fold's tested rows; empty for clustering.
        test: Rows that nobody has seen; None if there are none.
        may_combine: Whether an ensemble may be made.
    """

    facts: TableFacts
    metric: str
    higher_is_better: bool
    truths: Sequence[Vector] = ()
    test: Rows | None = None
    may_combine: bool = True


@dataclass
class Finished:
    """What became of it.

    Attributes:
        best: The number of the best one.
        model: Saved; None if none could be.
        made: An evaluation that is new, or takes the place of the one of the same number.
        answers: Of the best, for each fold's tested rows.
        test_answer: Of the model, for the test table.
        importances: Of each column, as the model knows them.
        clusters: Of a clustering, for a sample of all rows.
        lost: What the metric loses when each column is shuffled.
        notes: For people.
    """

    best: int | None = None
    model: FoundModel | None = None
    made: Evaluation | None = None
    answers: Sequence[Answer] = ()
    test_answer: Answer | None = None
    importances: tuple[float, ...] | None = None
    clusters: Answer | None = None
    lost: tuple[float, ...] | None = None
    notes: list[str] = field(default_factory=list)


def finish_s(
    evaluations: Sequence[Evaluation],
    question: Question,
    time_s: float,
    num_folds: int,
    start_s: float = 0.0,
) -> float:
    """Seconds that have to be left for finishing, with what is done so far.

    Args:
        evaluations: That.
        question: What is searched.
        time_s: Of the whole search; 0 for no limit.
        num_folds: Of cross-validation.
        start_s: Workers that are busy then are ended, and another one takes so long to start.
    """
    best = best_of(evaluations, higher_is_better=question.higher_is_better)
    if best is None:
        return min(REPORT_S, 0.2 * time_s)
    test_s = best.predict_row_s * (0 if question.test is None else len(question.test))
    alone_s = MARGIN * (whole_fit_s(best, num_folds) + test_s) + SAVING_S
    extra_s = min(MOST_S, SHARE * time_s, TIMES * alone_s) if question.may_combine else 0.0
    return min(REPORT_S, 0.2 * time_s) + start_s + max(alone_s, extra_s)


def last_s(now_s: float, time_s: float, fits_s: float, paid_s: float = math.inf) -> float:
    """When the model has to be there; all times are seconds since the search began.

    Args:
        now_s: That have gone by.
        time_s: Of the whole search; infinite for no limit, and then there shall be a model.
        fits_s: Training on all rows is thought to take so long.
        paid_s: Workers can be paid for so much longer.
    """
    if math.isfinite(time_s):
        last = time_s - min(REPORT_S, 0.2 * time_s)
    else:
        last = now_s + max(LEAST_S, 0.5 * now_s, PATIENCE * fits_s)
    return min(last, now_s + paid_s)


class Finish:
    """Makes the model.

    Args:
        question: What was searched.
        answers: Of the candidates.
        folder: Of the search.
        clock: Seconds since the search began.
        watcher: Of the user.
    """

    def __init__(
        self,
        question: Question,
        answers: Answers,
        folder: Path,
        clock: Callable[[], float],
        watcher: SearchWatcher,
    ) -> None:
        self._question, self._answers, self._folder = question, answers, folder
        self._clock, self._watcher = clock, watcher

    def run(
        self,
        evaluations: Sequence[Evaluation],
        fit: FitAll,
        num_workers: int,
        end_s: float,
        *,
        only_one: bool,
    ) -> Finished:
        """Choose, train, test, save.

        Args:
            evaluations: Of all candidates.
            fit: Trains them.
            num_workers: That can do so at once.
            end_s: Since the search began; the model has to be there then.
            only_one: Whether there is no time for an ensemble.
        """
        finished = Finished()
        choice = self._choose(evaluations, finished, num_workers, end_s, only_one=only_one)
        if choice is None:
            finished.notes.append("no candidate was done, so there is no model")
            return finished
        self._watcher.finishing(f"training {_named(choice)} on all rows")
        fresh = self._folder / "model.new"
        shutil.rmtree(fresh, ignore_errors=True)
        by_number = {one.candidate.number: one for one in evaluations}
        members = [by_number[number].candidate for number in choice.weights]
        fitted = fit.run(members, fresh, end_s)
        lost = [number for number in choice.weights if number not in fitted]
        for number in lost:
            why = fit.failures.get(number, "it could not be trained on all rows")
            finished.notes.append(f"candidate {number} is not in the model: {why}")
        if not fitted:
            choice, fitted = self._instead(evaluations, choice, fit, fresh, end_s, finished)
        elif lost:
            choice = self._of_those_left([by_number[number] for number in fitted], choice)
            fitted = {number: fitted[number] for number in choice.weights}
        finished.best = choice.evaluation.candidate.number
        finished.made, finished.answers = choice.evaluation, choice.answers
        if fitted:
            self._save(choice, fitted, by_number, fresh, finished)
        else:
            finished.notes.append("there was no time to train the best candidate on all rows")
        return finished

    def _choose(
        self,
        evaluations: Sequence[Evaluation],
        finished: Finished,
        num_workers: int,
        end_s: float,
        *,
        only_one: bool,
    ) -> Choice | None:
        question = self._question
        best = best_of(evaluations, higher_is_better=question.higher_is_better)
        if best is None:
            return None
        number = best.candidate.number
        alone = Choice(best, {number: 1.0}, self._answers.of(number) or ())
        if only_one or not question.may_combine or not question.truths:
            return alone
        self._watcher.finishing("choosing what to combine")
        left_s = end_s - self._clock()
        # Should it be too late for the last ones, the others are weighed anew, and scored so.
        most_s = left_s * num_workers / MARGIN
        own = 1 + max(one.candidate.number for one in evaluations)
        together = self._combined(evaluations, most_s, own)
        if together is None:
            return alone
        if is_surely_better(best, together.evaluation, higher_is_better=question.higher_is_better):
            finished.notes.append("combining candidates would be no better than the best one")
            return alone
        gain = (together.evaluation.score or 0.0) - (best.score or 0.0)
        if (gain if question.higher_is_better else -gain) < 0:
            finished.notes.append(
                f"candidate {number} has a better score than the ensemble, by no more than luck; "
                "the ensemble is taken, since it errs less often on rows that nobody has seen"
            )
        return together

    def _combined(
        self, evaluations: Sequence[Evaluation], most_s: float, number: int
    ) -> Choice | None:
        question = self._question
        return combined(
            evaluations,
            self._answers,
            question.truths,
            question.facts,
            metric=question.metric,
            higher_is_better=question.higher_is_better,
            most_s=most_s,
            number=number,
            now_s=self._clock(),
        )

    def _of_those_left(self, left: Sequence[Evaluation], choice: Choice) -> Choice:
        """What the members that could be trained are without the others: weighed, scored anew."""
        together = self._combined(left, math.inf, choice.evaluation.candidate.number)
        best = best_of(left, higher_is_better=self._question.higher_is_better)
        if together is not None or best is None:
            return together or choice
        number = best.candidate.number
        return Choice(best, {number: 1.0}, self._answers.of(number) or ())

    def _instead(
        self,
        evaluations: Sequence[Evaluation],
        choice: Choice,
        fit: FitAll,
        fresh: Path,
        end_s: float,
        finished: Finished,
    ) -> tuple[Choice, dict[int, Fitted]]:
        """Another candidate, the best first, where none that was chosen could be trained."""
        sign = -1.0 if self._question.higher_is_better else 1.0
        others = [
            one
            for one in evaluations
            if one.score is not None and one.candidate.number not in choice.weights
        ]
        others.sort(key=lambda one: sign * (one.score or 0.0))
        num_folds = max(1, len(self._question.truths))
        for one in others:
            left_s = end_s - self._clock()
            if left_s <= 0:
                break
            if whole_fit_s(one, num_folds) * MARGIN > left_s:
                continue
            fitted = fit.run([one.candidate], fresh, end_s)
            if fitted:
                number = one.candidate.number
                finished.notes.append(f"candidate {number} is the best that could be trained")
                return Choice(one, {number: 1.0}, self._answers.of(number) or ()), fitted
        return choice, {}

    def _save(
        self,
        choice: Choice,
        fitted: dict[int, Fitted],
        by_number: dict[int, Evaluation],
        fresh: Path,
        finished: Finished,
    ) -> None:
        question, candidate = self._question, choice.evaluation.candidate
        weights = choice.weights
        members = tuple(
            Member(by_number[it].candidate, str(it), weight) for it, weight in weights.items()
        )
        about = About(question.facts, question.metric, candidate, members, versions())
        for one in fresh.iterdir():  # what was not trained to its end is not kept
            if one.name not in map(str, fitted):
                shutil.rmtree(one, ignore_errors=True)
        write_about(about, fresh)
        Model(fresh)  # it can be read, before it takes the place of another one
        whole, old = self._folder / "model", self._folder / "model.old"
        shutil.rmtree(old, ignore_errors=True)
        if whole.exists():
            whole.rename(old)
        fresh.rename(whole)
        shutil.rmtree(old, ignore_errors=True)
        scores: dict[str, float] = {}
        parts = [fitted[it].test_answer for it in weights]
        known = [one for one in parts if one is not None]
        if question.test is not None and len(known) == len(parts):
            answer = known[0] if len(known) == 1 else mixed(known, list(weights.values()))
            finished.test_answer = answer
            if question.test.y is not None:
                scores = scores_of(question.facts, answer, question.test.y, x=question.test.x)
        if len(fitted) == 1:
            scores = dict(next(iter(fitted.values())).test_scores) or scores
            finished.importances = next(iter(fitted.values())).importances
            finished.clusters = next(iter(fitted.values())).clusters
        finished.lost = _mean_of([(fitted[it].lost, weight) for it, weight in weights.items()])
        size_bytes = sum(one.stat().st_size for one in whole.rglob("*") if one.is_file())
        row_s = sum(one.predict_row_s for one in fitted.values())
        if finished.made is not None:
            finished.made = dataclasses.replace(
                finished.made, size_bytes=size_bytes, predict_row_s=row_s
            )
        finished.model = FoundModel(
            folder="model",
            candidate=candidate,
            score=choice.evaluation.score,
            test_score=scores.get(question.metric),
            test_scores=scores,
            size_bytes=size_bytes,
            predict_row_s=row_s,
        )


def _mean_of(
    parts: Sequence[tuple[tuple[float, ...] | None, float]],
) -> tuple[float, ...] | None:
    """Weighted, over members; None if one of them is not known."""
    known = [(values, weight) for values, weight in parts if values is not None]
    if not known or len(known) < len(parts):
        return None
    places = range(len(known[0][0]))
    return tuple(sum(weight * values[place] for values, weight in known) for place in places)


def is_surely_better(best: Evaluation, other: Evaluation, *, higher_is_better: bool) -> bool:
    """Whether the best candidate is better than an ensemble by more than luck would make it.

    Its score is the greatest of all, also by luck; an ensemble's is on rows by which none of its
    weights was found. Between equals the ensemble holds on other rows, so a tie is its. Folds are
    compared one by one, since some are harder than others for both.
    """
    sign = 1.0 if higher_is_better else -1.0
    whole = [[it.score for it in one.rungs if it.rung.share >= 1.0] for one in (best, other)]
    gains = [sign * (own - its) for own, its in zip(*whole, strict=False)]
    if len(gains) < 2:
        return sign * ((other.score or 0.0) - (best.score or 0.0)) <= 0.0
    error = statistics.stdev(gains) / math.sqrt(len(gains))
    return bool(statistics.fmean(gains) > SURE * error)


def _named(choice: Choice) -> str:
    count = len(choice.weights)
    return (
        choice.evaluation.candidate.technique if count == 1 else f"{count} members of an ensemble"
    )


def versions() -> dict[str, str]:
    """Of what has made a model."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"reparto": __version__, "python": platform.python_version()}
    for name in ("numpy", "scikit-learn", "lightgbm", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
