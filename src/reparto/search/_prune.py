"""Pruner: does a candidate go on, or is it given up? Asynchronous: nobody waits for others.

    rungs of a candidate      1/9 ── 1/3 ── whole fold 0 ── fold 1 ── … ── fold K-1
    it goes on if it is       └── among the best third ──┘  └── not hopelessly behind the best ──┘
                              of those that have been there, on the same folds
                              or of a good technique's own

A rung is halved as in ASHA (Li et al., 2018), in its stopping form: a candidate is never set
aside to be taken up again, so a worker keeps one model at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from reparto.spec import Candidate, RungScore

#: Of those that have reached a rung, one in so many goes on.
REDUCTION = 3
#: Nobody is given up before so many have been at the same rung.
FIRST = 5
#: Of so many techniques, each one's own best part goes on too.
GOOD_TECHNIQUES = 3
#: A candidate is hopeless if it is behind by more than so many standard errors of the difference.
BEHIND = 2.0


class Pruner:
    """Decides. Is told every rung of every candidate, in the order in which they come.

    Args:
        higher_is_better: Of the metric.
    """

    def __init__(self, *, higher_is_better: bool) -> None:
        self._sign = -1.0 if higher_is_better else 1.0
        self._at: dict[tuple[int, float], dict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._best: list[float] = []

    def goes_on(self, candidate: Candidate, reached: Sequence[RungScore]) -> bool:
        """Whether it does, after the last of these rungs."""
        last = reached[-1]
        loss = self._sign * last.score
        if last.rung.share < 1.0 or last.rung.fold == 0:
            rung = (last.rung.fold, last.rung.share)
            return self._is_among_best(rung, candidate.technique, loss)
        return not self._is_hopeless(self._folds(reached))

    def done(self, reached: Sequence[RungScore]) -> None:
        """Hear of a candidate that is through; others are held against the best of these."""
        folds = self._folds(reached)
        if folds and (not self._best or math.fsum(folds) < math.fsum(self._best)):
            self._best = folds

    def _folds(self, reached: Sequence[RungScore]) -> list[float]:
        return [self._sign * one.score for one in reached if one.rung.share >= 1.0]

    def _is_among_best(self, rung: tuple[int, float], kind: str, loss: float) -> bool:
        at = self._at[rung]
        others = [it for losses in at.values() for it in losses]
        own = at[kind]
        # The best of a technique goes on to the next rung: techniques differ in how soon they
        # show what they are worth, and an ensemble lives on their difference.
        is_own_best = loss < min(own, default=math.inf)
        among_all, among_own = _is_in_first_part(loss, others), _is_in_first_part(loss, own)
        own.append(loss)
        if len(others) < FIRST or is_own_best or among_all:
            return True
        # Many cheap candidates of one technique must not crowd out those of others that are good.
        return among_own and kind in sorted(at, key=lambda it: min(at[it]))[:GOOD_TECHNIQUES]

    def _is_hopeless(self, folds: list[float]) -> bool:
        count = len(folds)
        if count < 2 or len(self._best) < count:
            return False
        behind = [own - best for own, best in zip(folds, self._best, strict=False)]
        mean = math.fsum(behind) / count
        spread = math.sqrt(math.fsum((one - mean) ** 2 for one in behind) / (count - 1))
        return mean > BEHIND * spread / math.sqrt(count) and mean > 0.0


def _is_in_first_part(loss: float, others: Sequence[float]) -> bool:
    """Whether it is among the best of these and itself."""
    return sum(other < loss for other in others) < (len(others) + 1) / REDUCTION
