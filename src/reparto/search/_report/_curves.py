"""Numbers behind figures of answers: curves, bins, confusions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._report._proof import Pair
from reparto.search._rows import Vector

MOST_POINTS = 400
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """How rows of a class stand before the others, at each threshold.

    Attributes:
        false: Share of the other rows that are taken for the class.
        hits: Share of its own rows that are: recall.
        precision: Share of its rows among all that are taken for it.
        share: Of the class among all rows.
    """

    false: Floats
    hits: Floats
    precision: Floats
    share: float


def ranking(pair: Pair) -> Ranking | None:
    """Of the second of two classes; None where there is but one."""
    values = pair.answer.values.astype(np.float64)
    score = values[:, 1] if pair.answer.are_probabilities else values[:, 1] - values[:, 0]
    truth = pair.truth == 1
    if not 0 < truth.sum() < len(truth):
        return None
    order = np.argsort(-score, kind="stable")
    ranked, hit = score[order], truth[order]
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(hit) - 1)
    hits = np.cumsum(hit)[last].astype(np.float64)
    false = 1.0 + last - hits
    thin = _thin(len(last))
    return Ranking(
        false=(false / false[-1])[thin],
        hits=(hits / hits[-1])[thin],
        precision=(hits / (1.0 + last))[thin],
        share=float(truth.mean()),
    )


@dataclass(frozen=True)
class Calibration:
    """How often it is right, against how sure it says it is.

    Attributes:
        said: Mean probability of each bin.
        true: Share of rows of each bin where it is so.
        counts: Rows of each bin.
        error: Expected calibration error: the mean distance of the two, weighted by rows.
    """

    said: Floats
    true: Floats
    counts: NDArray[np.int64]
    error: float


def calibration(pair: Pair, bins: int = 10) -> Calibration | None:
    """Of two classes, of the second one; of several, of the one that is answered.

    None where answers are no probabilities.
    """
    values = pair.answer.values.astype(np.float64)
    if not pair.answer.are_probabilities or not len(values):
        return None
    if values.shape[1] == 2:
        said, is_so = values[:, 1], pair.truth == 1
    else:
        said, is_so = values.max(axis=1), pair.answer.labels == pair.truth
    place = np.clip((said * bins).astype(np.int64), 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    there = counts > 0
    sums = np.bincount(place, weights=said, minlength=bins)[there]
    hits = np.bincount(place, weights=is_so, minlength=bins)[there]
    mean, true = sums / counts[there], hits / counts[there]
    error = float(np.sum(np.abs(mean - true) * counts[there]) / len(said))
    return Calibration(mean, true, counts[there], error)


@dataclass(frozen=True)
class Confusion:
    """Rows by what is true and what is answered.

    Attributes:
        classes: The numbers of those that are shown, in order.
        counts: Of these, truths by answers; the last row and column are all other classes, if
            there are any.
        has_others: Whether there are.
    """

    classes: NDArray[np.int64]
    counts: NDArray[np.int64]
    has_others: bool


def confusion(pair: Pair, num_classes: int, most: int) -> Confusion:
    """Of all classes, or of those with the most wrong answers."""
    truth = pair.truth.astype(np.int64)
    said = pair.answer.labels.astype(np.int64)
    shown = np.arange(num_classes)
    if num_classes > most:
        wrong = truth != said
        errors = np.bincount(truth[wrong], minlength=num_classes) + np.bincount(
            said[wrong], minlength=num_classes
        )
        sizes = np.bincount(truth, minlength=num_classes)
        shown = np.sort(np.lexsort((-sizes, -errors))[:most])
    place = np.full(num_classes, len(shown))
    place[shown] = np.arange(len(shown))
    side = len(shown) + (num_classes > most)
    flat = np.bincount(place[truth] * side + place[said], minlength=side * side)
    return Confusion(shown, flat.reshape(side, side), num_classes > most)


@dataclass(frozen=True)
class PerClass:
    """Of each class.

    Attributes:
        rows: That are of it.
        precision: Of the rows that are taken for it, those that are; NaN if none is.
        recall: Of its rows, those that are taken for it; NaN if there is none.
        f1: Between the two.
    """

    rows: NDArray[np.int64]
    precision: Floats
    recall: Floats
    f1: Floats


def per_class(pair: Pair, num_classes: int) -> PerClass:
    """Precision, recall and F1."""
    truth, said = pair.truth.astype(np.int64), pair.answer.labels.astype(np.int64)
    rows = np.bincount(truth, minlength=num_classes)
    taken = np.bincount(said, minlength=num_classes)
    right = np.bincount(truth[truth == said], minlength=num_classes)
    with np.errstate(invalid="ignore", divide="ignore"):
        return PerClass(rows, right / taken, right / rows, 2 * right / (rows + taken))


def worst_pairs(pair: Pair, most: int = 12) -> list[tuple[int, int, int]]:
    """Classes that are taken for others most often: truth, answer, rows."""
    truth, said = pair.truth.astype(np.int64), pair.answer.labels.astype(np.int64)
    wrong = truth != said
    if not wrong.any():
        return []
    pairs, counts = np.unique(np.stack([truth[wrong], said[wrong]]), axis=1, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return [(int(pairs[0, i]), int(pairs[1, i]), int(counts[i])) for i in order]


def sampled(count: int, most: int) -> Any:
    """Which of so many rows are drawn: at most `most`, the same each time."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).choice(count, most, replace=False))


def histogram(values: Vector, bins: int = 31) -> tuple[NDArray[np.int64], Floats]:
    """Counts and edges, between the 0.5th and 99.5th of 100; the rest is at the edges."""
    low, high = np.quantile(values, [0.005, 0.995])
    if not high > low:
        low, high = low - 0.5, high + 0.5
    counts, edges = np.histogram(np.clip(values, low, high), bins=bins, range=(low, high))
    return counts, edges


def _thin(count: int) -> NDArray[np.int64]:
    if count <= MOST_POINTS:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, MOST_POINTS).astype(np.int64))
