"""What becomes the model: the best candidate, or several of them combined if that is better."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reparto.search._answers import Answers
from reparto.search._ensemble import MAX_CANDIDATES, Pool, mixed, weigh
from reparto.search._rows import Answer, Vector
from reparto.search._tally import mean_scores
from reparto.search.metrics import scores_of
from reparto.spec import Candidate, Evaluation, Rung, RungScore, TableFacts

ENSEMBLE = "ensemble"


@dataclass(frozen=True)
class Choice:
    """What is to be trained on all rows.

    Attributes:
        evaluation: Of what was chosen; of an ensemble, a new one.
        weights: By the number of each candidate in it.
        answers: For each fold's tested rows, by candidates that were not trained on them.
        note: Why not otherwise, for people.
    """

    evaluation: Evaluation
    weights: Mapping[int, float]
    answers: Sequence[Answer] = ()
    note: str = ""


def whole_fit_s(evaluation: Evaluation, num_folds: int) -> float:
    """About how long its candidate takes on all rows."""
    folds: dict[int, float] = {}
    for one in evaluation.rungs:
        folds[one.rung.fold] = folds.get(one.rung.fold, 0.0) + one.fit_s
    if not folds:
        return 0.0
    return statistics.fmean(folds.values()) * (
        num_folds / (num_folds - 1) if num_folds > 1 else 1.3
    )


def best_of(evaluations: Sequence[Evaluation], *, higher_is_better: bool) -> Evaluation | None:
    """The best that is done; else the best of which some folds are known, and it says so."""
    sign = -1.0 if higher_is_better else 1.0
    done = [one for one in evaluations if one.score is not None]
    if done:
        return min(done, key=lambda one: (sign * (one.score or 0.0), one.busy_s))
    partly = [one for one in map(_as_far_as_it_came, evaluations) if one is not None]
    return min(partly, key=lambda one: (-len(one.rungs), sign * (one.score or 0.0)), default=None)


def _as_far_as_it_came(one: Evaluation) -> Evaluation | None:
    whole = [it for it in one.rungs if it.rung.share >= 1.0]
    if one.status == "failed" or not whole:
        return None
    note = f"tested on {len(whole)} of the folds only: there was no time for the others"
    values = [it.score for it in whole]
    return dataclasses.replace(
        one,
        rungs=tuple(whole),
        score=statistics.fmean(values),
        spread=statistics.stdev(values) if len(values) > 1 else None,
        notes=(*one.notes, note),
    )


def combined(
    evaluations: Sequence[Evaluation],
    answers: Answers,
    truths: Sequence[Vector],
    facts: TableFacts,
    *,
    metric: str,
    higher_is_better: bool,
    most_s: float,
    number: int,
    now_s: float,
) -> Choice | None:
    """An ensemble of candidates that are done; None if there are too few.

    Args:
        evaluations: Of all candidates.
        answers: Theirs, kept.
        truths: Of each fold's tested rows.
        facts: Of the table.
        metric: By which candidates are ranked.
        higher_is_better: Of that metric.
        most_s: Training its members may take so long, one after another.
        number: Of the ensemble, as a candidate.
        now_s: Seconds since the search began.
    """
    pool = _pool(evaluations, answers, truths, facts, higher_is_better=higher_is_better)
    if len(pool.numbers) < 2:
        return None
    weights = weigh(pool, most_s)
    if len(weights) < 2:
        return None
    by_number = dict(zip(pool.numbers, pool.answers, strict=True))
    folds, rungs = [], []
    for fold, truth in enumerate(truths):
        own = weigh(pool, most_s, without=fold) if len(truths) > 1 else weights
        answer = mixed([by_number[it][fold] for it in own], list(own.values()))
        scores = scores_of(facts, answer, truth)
        if metric not in scores:
            return None
        folds.append(answer)
        rungs.append(
            RungScore(
                rung=Rung(fold=fold), score=scores[metric], scores=scores, num_rows=len(truth)
            )
        )
    values = [one.score for one in rungs]
    heaviest = sorted(weights.items(), key=lambda it: -it[1])
    members = [[it, round(weight, 4)] for it, weight in heaviest]
    notes = ["its score on each fold is with weights that were found on the other folds"]
    if len(truths) == 1:
        notes = ["its weights were found on the rows that it is tested on: its score flatters it"]
    evaluation = Evaluation(
        candidate=Candidate(
            number=number, technique=ENSEMBLE, settings={"members": members}, origin="ensemble"
        ),
        status="done",
        rungs=tuple(rungs),
        score=statistics.fmean(values),
        spread=statistics.stdev(values) if len(values) > 1 else None,
        scores=mean_scores(rungs),
        began_s=now_s,
        ended_s=now_s,
        predict_row_s=sum(one.predict_row_s for one in _of(evaluations, weights)),
        size_bytes=sum(one.size_bytes for one in _of(evaluations, weights)),
        notes=tuple(notes),
    )
    return Choice(evaluation, dict(heaviest), folds)


def _of(evaluations: Sequence[Evaluation], numbers: Mapping[int, float]) -> list[Evaluation]:
    return [one for one in evaluations if one.candidate.number in numbers]


def _pool(
    evaluations: Sequence[Evaluation],
    answers: Answers,
    truths: Sequence[Vector],
    facts: TableFacts,
    *,
    higher_is_better: bool,
) -> Pool:
    sign = -1.0 if higher_is_better else 1.0
    done = [one for one in evaluations if one.score is not None]
    done.sort(key=lambda one: sign * (one.score or 0.0))
    chosen: list[Evaluation] = []
    kept: list[list[Answer]] = []
    for one in done:
        own = answers.of(one.candidate.number)
        fits = own is not None and [len(it.values) for it in own] == [len(it) for it in truths]
        if own is None or not fits or len(kept) >= MAX_CANDIDATES:
            continue
        if facts.is_classification and not all(it.are_probabilities for it in own):
            continue
        chosen.append(one)
        kept.append(own)
    return Pool(
        numbers=[one.candidate.number for one in chosen],
        answers=kept,
        truths=truths,
        are_classes=facts.is_classification,
        costs_s=[whole_fit_s(one, len(truths)) for one in chosen],
    )
