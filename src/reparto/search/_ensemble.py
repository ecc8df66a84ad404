"""Which candidates to combine, and how much each counts: greedy selection (Caruana et al., 2004).

Weights are found on answers for rows that no candidate was trained on. What the ensemble scores
is told honestly: on each fold with weights that were found on the other folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import Answer, Vector

#: So often a candidate is added, some of them several times.
ROUNDS = 30
#: Only so many of the best are looked at.
MAX_CANDIDATES = 40
#: Weights are found on so many rows at most.
MAX_ROWS = 50_000
#: So often they are found anew on other draws of the rows, if all draws have no more values.
DRAWS, FEWEST_DRAWS, DRAWN_VALUES = 10, 5, 1_000_000
#: A candidate that counts less is not worth being trained, kept and asked.
LEAST_WEIGHT = 0.02
_SMALLEST = 1e-6

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pool:
    """What is chosen from: answers of candidates, the best candidate first.

    Attributes:
        numbers: Of the candidates.
        answers: Of each candidate, for each fold.
        truths: Of each fold's tested rows.
        are_classes: Whether classes are to be told apart.
        costs_s: Seconds to train each candidate on all rows.
    """

    numbers: Sequence[int]
    answers: Sequence[Sequence[Answer]]
    truths: Sequence[Vector]
    are_classes: bool
    costs_s: Sequence[float]


@dataclass(frozen=True)
class _Evidence:
    """What weights are found by.

    Attributes:
        values: A row for each candidate: what it says of each row of the table, or of classes, the
            probability of the true one.
        target: What is true; None for classes.
    """

    values: _Floats
    target: _Floats | None

    def losses(self, means: _Floats) -> _Floats:
        """Of each row of such values."""
        if self.target is None:
            return np.asarray(-np.log(np.maximum(means, _SMALLEST)).mean(axis=1))
        return np.asarray(np.square(means - self.target).mean(axis=1))

    def drawn(self, rng: np.random.Generator) -> _Evidence:
        """As many rows, drawn with replacement: another table that might have been."""
        places = rng.integers(0, self.values.shape[1], self.values.shape[1])
        target = None if self.target is None else self.target[places]
        return _Evidence(self.values[:, places], target)


def weigh(pool: Pool, most_s: float, *, without: int | None = None) -> dict[int, float]:
    """How much each candidate counts; those that do not count are left out.

    Where there are few rows, it is luck which candidates are chosen: so they are chosen several
    times, by other draws of the same rows, and their weights are the mean (bagged selection, as
    the same paper has it).

    Args:
        pool: What is chosen from.
        most_s: Training all that are chosen may take so long.
        without: A fold that is not looked at.
    """
    folds = [fold for fold in range(len(pool.truths)) if fold != without]
    evidence = _evidence(pool, folds)
    shares = [_chosen(evidence, pool, most_s, np.zeros(len(pool.numbers), bool))]
    num_draws = min(DRAWS, DRAWN_VALUES // max(1, evidence.values.size))
    if num_draws >= FEWEST_DRAWS:
        rng = np.random.default_rng(0)
        bought = shares[0] > 0.0
        for _ in range(num_draws):
            shares.append(_chosen(evidence.drawn(rng), pool, most_s, bought))
            bought |= shares[-1] > 0.0
    weights = np.mean(shares, axis=0)
    least = min(LEAST_WEIGHT, weights.max() / 2)  # of very many that are alike, none counts much
    weights[weights < least] = 0.0
    weights /= weights.sum()
    return {pool.numbers[i]: float(weights[i]) for i in map(int, np.flatnonzero(weights))}


def _chosen(evidence: _Evidence, pool: Pool, most_s: float, bought: NDArray[np.bool_]) -> _Floats:
    """Shares of the candidates, found by adding the best one again and again.

    Args:
        evidence: By which they are found.
        pool: What is chosen from.
        most_s: Training all of them may take so long.
        bought: Those that are trained in any case.
    """
    costs_s, bought = np.asarray(pool.costs_s), bought.copy()
    counts, total = np.zeros(len(pool.numbers)), np.zeros(evidence.values.shape[1])
    best = np.inf
    for round_ in range(ROUNDS):
        losses = evidence.losses((total + evidence.values) / (round_ + 1))
        if bought.any():
            is_dear = ~bought & (costs_s[bought].sum() + costs_s > most_s)
            losses[is_dear] = np.inf
        chosen = int(np.argmin(losses))
        if not losses[chosen] < best - 1e-12 * abs(best if np.isfinite(best) else 1.0):
            break
        best = float(losses[chosen])
        bought[chosen] = True
        counts[chosen] += 1
        total += evidence.values[chosen]
    if not counts.any():
        counts[0] = 1
    shares: _Floats = counts / counts.sum()
    return shares


def _evidence(pool: Pool, folds: Sequence[int]) -> _Evidence:
    truth = np.concatenate([pool.truths[fold] for fold in folds])
    step = max(1, -(-len(truth) // MAX_ROWS))
    rows = []
    for answers in pool.answers:
        values = np.concatenate([answers[fold].values for fold in folds])
        if pool.are_classes:  # only the probability of what is true matters
            values = np.take_along_axis(values, truth[:, None].astype(np.int64), axis=1)[:, 0]
        rows.append(values[::step].astype(np.float64))
    return _Evidence(np.stack(rows), None if pool.are_classes else truth[::step])


def mixed(answers: Sequence[Answer], weights: Sequence[float]) -> Answer:
    """The weighted mean of answers for the same rows."""
    values = sum(
        weight * one.values.astype(np.float64)
        for weight, one in zip(weights, answers, strict=True)
    )
    return Answer(np.asarray(values), all(one.are_probabilities for one in answers))
