"""How sure it is that the best candidate is the best, and that it has learned anything."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from reparto.spec import Evaluation, SearchResult

#: Two-sided 95 % points of Student's t, by degrees of freedom; beyond them about 2.
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)


def best_of(result: SearchResult) -> Evaluation | None:
    """The evaluation of the best candidate."""
    for one in result.evaluations:
        if one.candidate.number == result.best:
            return one
    return None


def told_apart(one: Evaluation, other: Evaluation) -> bool | None:
    """Whether two candidates differ by more than luck; None where nobody can know.

    On the same folds their differences are compared with 0. Folds share rows that are trained on,
    and their scores are not independent, so the variance is corrected (Nadeau and Bengio, 2003).
    """
    own, others = fold_scores(one), fold_scores(other)
    folds = own.keys() & others.keys()
    if len(folds) < 2 or len(folds) < max(len(own), len(others)):
        return None
    apart = [own[fold] - others[fold] for fold in folds]
    return abs(statistics.fmean(apart)) > luck(statistics.stdev(apart), len(folds))


def beats(result: SearchResult, one: Evaluation, score: float) -> bool | None:
    """Whether a candidate is better than a score by more than luck; None if nobody can know."""
    if one.score is None:
        return None
    gain = one.score - score if result.higher_is_better else score - one.score
    if gain <= 0:
        return False
    if one.spread is None or not math.isfinite(one.spread):
        return None
    return gain > luck(one.spread, max(2, len(fold_scores(one))))


def tied_with(result: SearchResult, best: Evaluation) -> tuple[Evaluation, ...]:
    """Others that may be as good as the best, the best of them first."""
    others = [one for one in result.leaderboard if one is not best]
    return tuple(one for one in others if told_apart(best, one) is False)


def luck(spread: float, num_folds: int, more: float = 0.0) -> float:
    """By how much a mean over folds may be off, 19 times out of 20.

    Args:
        spread: Deviation of the folds.
        num_folds: How many there are.
        more: The variance of what it is held against, in that of a fold.
    """
    t = _T[num_folds - 2] if num_folds - 2 < len(_T) else 2.0
    return t * spread * math.sqrt(1 / num_folds + 1 / (num_folds - 1) + more)


def fold_scores(one: Evaluation) -> Mapping[int, float]:
    """Of the folds that it was trained on wholly."""
    return {
        it.rung.fold: it.score
        for it in one.rungs
        if it.rung.share >= 1.0 and math.isfinite(it.score)
    }
