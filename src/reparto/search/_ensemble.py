"""Which candidates to combine, and how much each counts: greedy selection (Caruana et al., 2004).

Weights are found on answers for rows that no candidate was trained on. What the ensemble scores
is told honestly: on each fold with weights that were found on the other folds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
_SMALLEST = 1e-6


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


Losses = Callable[[NDArray[np.float64]], float]


def weigh(pool: Pool, most_s: float, *, without: int | None = None) -> dict[int, float]:
    """How much each candidate counts; those that do not count are left out.

    Args:
        pool: What is chosen from.
        most_s: Training all that are chosen may take so long.
        without: A fold that is not looked at.
    """
    folds = [fold for fold in range(len(pool.truths)) if fold != without]
    evidence, loss = _evidence(pool, folds)
    counts, total = np.zeros(len(pool.numbers)), np.zeros(evidence.shape[1])
    spent_s, best = 0.0, np.inf
    for round_ in range(ROUNDS):
        losses = [
            loss((total + row) / (round_ + 1)) if _is_affordable(pool, counts, i, spent_s, most_s)
            else np.inf
            for i, row in enumerate(evidence)
        ]  # fmt: skip
        chosen = int(np.argmin(losses))
        if not losses[chosen] < best - 1e-12 * abs(best if np.isfinite(best) else 1.0):
            break
        best = losses[chosen]
        spent_s += 0.0 if counts[chosen] else pool.costs_s[chosen]
        counts[chosen] += 1
        total += evidence[chosen]
    if not counts.any():
        counts[0] = 1
    weights = counts / counts.sum()
    return {pool.numbers[i]: float(weights[i]) for i in map(int, np.flatnonzero(counts))}


def _is_affordable(
    pool: Pool, counts: NDArray[np.float64], index: int, spent_s: float, most_s: float
) -> bool:
    return bool(counts[index]) or not counts.any() or spent_s + pool.costs_s[index] <= most_s


def _evidence(pool: Pool, folds: Sequence[int]) -> tuple[NDArray[np.float64], Losses]:
    """A row of numbers for each candidate, and the loss of a mean of such rows."""
    truth = np.concatenate([pool.truths[fold] for fold in folds])
    step = max(1, -(-len(truth) // MAX_ROWS))
    rows = []
    for answers in pool.answers:
        values = np.concatenate([answers[fold].values for fold in folds])
        if pool.are_classes:  # only the probability of what is true matters
            values = np.take_along_axis(values, truth[:, None].astype(np.int64), axis=1)[:, 0]
        rows.append(values[::step].astype(np.float64))
    if pool.are_classes:
        return np.stack(rows), lambda mean: float(-np.log(np.maximum(mean, _SMALLEST)).mean())
    target = truth[::step]
    return np.stack(rows), lambda mean: float(np.square(mean - target).mean())


def mixed(answers: Sequence[Answer], weights: Sequence[float]) -> Answer:
    """The weighted mean of answers for the same rows."""
    values = sum(
        weight * one.values.astype(np.float64)
        for weight, one in zip(weights, answers, strict=True)
    )
    return Answer(np.asarray(values), all(one.are_probabilities for one in answers))
