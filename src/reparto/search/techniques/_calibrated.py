"""CalibratedTrainer: probabilities from how far rows are from a border, as support vectors say it.

Distances of rows that a model was trained on are too large, so they are taken from models that
have not seen these rows: of a small table from three that have each seen two thirds, of a large
one from one that has seen four fifths. On them a logistic regression learns what a distance is
worth (Platt, 1999); the model itself is then trained on all rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import Matrix, Vector
from reparto.search.techniques._estimator import EstimatorTrainer

#: Up to so many rows all of them are used for it.
FEW = 3000
PARTS, SPARED = 3, 5
#: A class of fewer rows cannot be in each part.
FEWEST = 2


class CalibratedTrainer(EstimatorTrainer):
    """Trains an estimator that has a ``decision_function`` and no probabilities."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._scale_of: Any = None
        self._weights: Vector | None = None
        self._shift: Vector | None = None

    @abstractmethod
    def make(self, num_rows: int, num_columns: int) -> Any:
        """An estimator that is not trained yet."""

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        if not self.facts.is_classification:
            self.estimator.fit(x, y)
            return
        assert y is not None
        self._calibrate(x, y)
        self.estimator.fit(x, y)

    def answer(self, x: Matrix) -> Vector:
        if not self.facts.is_classification:
            return super().answer(x)
        assert self._weights is not None and self._shift is not None
        found = self._distances(self.estimator, x) @ self._weights + self._shift
        if found.shape[1] == 1:
            found = np.concatenate([np.zeros_like(found), found], axis=1)
        found = np.exp(found - found.max(axis=1, keepdims=True))
        probabilities: Vector = found / found.sum(axis=1, keepdims=True)
        return probabilities

    def _calibrate(self, x: Matrix, y: Vector) -> None:
        from sklearn.linear_model import LogisticRegression

        distances, truths = [], []
        for train, test in _parts(y):
            if len(np.unique(y[train])) < len(np.unique(y)):
                continue
            part = self.make(len(train), x.shape[1]).fit(x[train], y[train])
            distances.append(self._distances(part, x[test]))
            truths.append(y[test])
        seen = np.concatenate(truths) if truths else np.zeros(0)
        if len(np.unique(seen)) < len(np.unique(y)):
            # Too few rows to spare any: a distance of 1 counts as e to 1.
            num_classes = len(np.unique(y))
            self._weights = self._votes(num_classes)
            self._shift = np.zeros(self._weights.shape[1])
            return
        values = np.concatenate(distances)
        width = float(values.std()) or 1.0
        strength = 10.0 if values.shape[1] == 1 else 1.0  # of many distances most say the same
        judge = LogisticRegression(C=strength, max_iter=200).fit(values / width, seen)
        self._weights, self._shift = judge.coef_.T / width, judge.intercept_

    def _votes(self, num_classes: int) -> NDArray[np.float64]:
        """What each distance says of each class, where nobody has judged it: its own one."""
        return np.eye(1 if num_classes == 2 else num_classes)

    def _distances(self, estimator: Any, x: Matrix) -> NDArray[np.float64]:
        found = np.asarray(estimator.decision_function(x), dtype=np.float64)
        return found[:, None] if found.ndim == 1 else found

    def state(self) -> dict[str, Any]:
        """With what a distance is worth."""
        return {**super().state(), "weights": self._weights, "shift": self._shift}

    def restore(self, state: Mapping[str, Any]) -> None:
        """With what a distance is worth."""
        super().restore(state)
        self._weights, self._shift = state["weights"], state["shift"]


def _parts(y: Vector) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Rows to train on and to judge by; each class is spread over all parts."""
    num_parts = PARTS if len(y) <= FEW else SPARED
    if np.bincount(y).min() < FEWEST:
        return
    order = np.argsort(y, kind="stable")
    part = np.empty(len(y), dtype=np.int64)
    part[order] = np.arange(len(y)) % num_parts
    for number in range(num_parts if len(y) <= FEW else 1):
        yield np.flatnonzero(part != number), np.flatnonzero(part == number)
