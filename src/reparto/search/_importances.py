"""How much each column matters to a model: by what is lost when its values are shuffled."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reparto.search._model import Model
from reparto.search._rows import Answer, Matrix, Rows
from reparto.search.metrics import METRICS, scores_of

if TYPE_CHECKING:
    from reparto.search._board import Seen

#: On so many rows, for so long at most, beside one prediction of them.
MAX_ROWS, MOST_S = 500, 3.0

Importances = tuple[tuple[str, float], ...]


def importances_of(
    folder: Path, seen: Seen | None, metric: str, own: Sequence[float] | None
) -> tuple[Importances, str]:
    """Of each column, the most important first, adding up to one; and how that was found.

    Args:
        folder: Of the model.
        seen: The table; None where it is elsewhere.
        metric: What is lost is told by it.
        own: As the model counts them; None if it does not.
    """
    if seen is None:
        return (), ""
    shuffled = _by_shuffling(folder, seen, metric)
    if shuffled is not None and max(shuffled) > 0:
        where = "that it was trained on" if seen.test is None else "of the test table"
        how = f"what {metric} loses when a column is shuffled, on rows {where}"
        return _ordered(seen.facts.columns, shuffled), how
    if own is not None:
        return _ordered(seen.facts.columns, own), "as the model counts them"
    return (), ""


def _ordered(columns: Sequence[object], values: Sequence[float]) -> Importances:
    total = sum(max(0.0, value) for value in values) or 1.0
    names = [str(getattr(column, "name", column)) for column in columns]
    pairs = [(name, max(0.0, value) / total) for name, value in zip(names, values, strict=True)]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def _by_shuffling(folder: Path, seen: Seen, metric: str) -> list[float] | None:
    """None if it would take too long, or nothing can be shuffled."""
    model = Model(folder)
    rows = seen.test if seen.test is not None and seen.test.y is not None else seen.all()
    rows = rows.head(min(1.0, MAX_ROWS / max(1, len(rows))))
    if rows.y is None or not isinstance(rows.x, np.ndarray):
        return None
    began = time.monotonic()
    model.predict(rows)  # loads it
    began = time.monotonic()
    base = _score(model, rows.x, rows, metric)
    if base is None or (time.monotonic() - began) * rows.x.shape[1] > MOST_S:
        return None
    sign = 1.0 if METRICS[metric].higher_is_better else -1.0
    random, lost = np.random.default_rng(0), []
    changed = np.array(rows.x)
    for column in range(rows.x.shape[1]):
        changed[:, column] = random.permutation(rows.x[:, column])
        score = _score(model, changed, rows, metric)
        lost.append(0.0 if score is None else sign * (base - score))
        changed[:, column] = rows.x[:, column]
    return lost


def _score(model: Model, x: Matrix, rows: Rows, metric: str) -> float | None:
    answer: Answer = model.predict(x)
    found = scores_of(model.facts, answer, rows.y).get(metric)
    return None if found is None else float(found)
