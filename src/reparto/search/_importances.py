"""How much each column matters to a model: by what is lost when its values are shuffled.

Workers find that out when they have trained on all rows: they have the model, and its libraries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from reparto.search._rows import Answer, Matrix, Rows
from reparto.search.metrics import METRICS, scores_of
from reparto.spec import SearchColumn, TableFacts

if TYPE_CHECKING:
    from reparto.search._board import Seen

#: On so many rows at most, and at least.
MAX_ROWS, MIN_ROWS = 500, 60

Importances = tuple[tuple[str, float], ...]
Predict = Callable[[Matrix], Answer]


def shuffled(predict: Predict, seen: Seen, metric: str, most_s: float) -> tuple[float, ...] | None:
    """What the metric loses when a column is shuffled; None if it would take too long.

    Args:
        predict: Of the model.
        seen: The table; the rows of the test table are taken where there are any.
        metric: What is lost is told by it.
        most_s: It may take so long, as far as one prediction tells.
    """
    rows = seen.test if seen.test is not None and seen.test.y is not None else seen.all()
    if rows.y is None or not isinstance(rows.x, np.ndarray):
        return None
    rows = rows.head(min(1.0, MAX_ROWS / max(1, len(rows))))
    began = time.monotonic()
    base = _score(predict, rows.x, rows, seen.facts, metric)
    too_much = (time.monotonic() - began) * rows.x.shape[1] / most_s
    if base is None or (too_much > 1 and len(rows) / too_much < MIN_ROWS):
        return None
    if too_much > 1:
        rows = rows.head(1 / too_much)
        base = _score(predict, rows.x, rows, seen.facts, metric)
    if base is None:
        return None
    sign = 1.0 if METRICS[metric].higher_is_better else -1.0
    random, lost = np.random.default_rng(0), []
    changed = np.array(rows.x)
    for column in range(rows.x.shape[1]):
        changed[:, column] = random.permutation(rows.x[:, column])
        score = _score(predict, changed, rows, seen.facts, metric)
        lost.append(0.0 if score is None else sign * (base - score))
        changed[:, column] = rows.x[:, column]
        if time.monotonic() - began > 2 * most_s:
            return None
    return tuple(lost)


def importances_of(
    columns: Sequence[SearchColumn],
    lost: Sequence[float] | None,
    own: Sequence[float] | None,
    metric: str,
    *,
    on_test: bool,
) -> tuple[Importances, str]:
    """Of each column, the most important first, adding up to one; and how that was found.

    Args:
        columns: That the model sees.
        lost: What the metric loses when each of them is shuffled; None if nobody knows.
        own: As the model counts them; None if it does not.
        metric: By which candidates are ranked.
        on_test: Whether rows of a test table were shuffled.
    """
    if lost is not None and len(lost) == len(columns) and max(lost, default=0.0) > 0:
        where = "of the test table" if on_test else "that it was trained on"
        how = f"what {METRICS[metric].label} loses when a column is shuffled, on rows {where}"
        return _ordered(columns, lost), how
    if own is not None and len(own) == len(columns):
        return _ordered(columns, own), "as the model counts them"
    return (), ""


def _ordered(columns: Sequence[SearchColumn], values: Sequence[float]) -> Importances:
    total = sum(max(0.0, value) for value in values) or 1.0
    pairs = [
        (column.name, max(0.0, value) / total)
        for column, value in zip(columns, values, strict=True)
    ]
    return tuple(sorted(pairs, key=lambda pair: -pair[1]))


def _score(
    predict: Predict, x: Matrix, rows: Rows, facts: TableFacts, metric: str
) -> float | None:
    return scores_of(facts, predict(x), rows.y).get(metric)
