"""Settings that are known to do well, by how many rows and columns there are.

They are near those that did well over hundreds of data sets in published searches (FLAML's
zero-shot settings, TabRepo's portfolio): of few rows smooth and slow ones, of many rows large
ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reparto.spec import Settings, TableFacts

#: Up to so many rows a table is small, and most of what a tree can follow is noise.
SMALL = 2000
#: From so many on, training stops by itself, so there may be many iterations.
LARGE = 10_000
#: So many columns may be of one kind, such as pixels, and want one scale.
MANY = 50
#: With more columns than that a tree looks at fewer of them: it is as good, and takes less time.
WIDE = 100


def listed(names: Sequence[str], *values: Sequence[Any]) -> tuple[Settings, ...]:
    """One mapping for each row of values."""
    return tuple(dict(zip(names, one, strict=True)) for one in values)


def narrowed(share: float, facts: TableFacts) -> float:
    """A share of the columns, of a wide table a smaller one."""
    if facts.num_columns <= WIDE:
        return share
    return max(least_share(facts), round(share * WIDE / facts.num_columns, 3))


def leaf(num_rows: int, facts: TableFacts) -> int:
    """So many rows a leaf, and of a very small table fewer: else nothing is ever split."""
    return max(2, min(num_rows, facts.num_rows // 8))


def least_share(facts: TableFacts) -> float:
    """The smallest share of the columns that is worth trying."""
    return 0.2 if facts.num_columns <= WIDE else max(0.02, round(20 / facts.num_columns, 3))


_LIGHT = (
    "iterations learning_rate num_leaves min_samples_leaf max_features subsampling_rate l1 l2 "
    "extra_trees".split()
)


def of_lightgbm(facts: TableFacts) -> tuple[Settings, ...]:
    """For LightGBM."""

    def share(value: float) -> float:
        return narrowed(value, facts)

    usual = (150, 0.07, 24, leaf(14, facts), share(0.7), 1.0, 1e-3, 1e-3, False)
    smooth = (500, 0.02, 16, leaf(30, facts), share(0.55), 1.0, 1e-3, 0.1, True)
    slow = (700, 0.012, 8, leaf(20, facts), share(0.4), 0.7, 1e-3, 3.0, False)
    drawn = (350, 0.034, 120, 6, share(0.83), 1.0, 1e-3, 1e-3, True)
    wide_leaves = (250, 0.047, 89, leaf(56, facts), share(0.62), 1.0, 1e-3, 1e-3, False)
    if facts.num_rows < SMALL:
        stumps = (300, 0.05, 4, leaf(10, facts), share(0.5), 0.8, 1e-3, 1.0, False)
        return listed(_LIGHT, smooth, usual, slow, stumps, drawn, wide_leaves)
    deep = (900, 0.022, 120, 3, share(0.7), 1.0, 4e-3, 0.11, False)
    if facts.num_rows < LARGE:
        middle = (400, 0.03, 50, 14, share(0.7), 0.9, 1e-3, 1e-3, False)
        return listed(_LIGHT, usual, middle, slow, smooth, drawn, wide_leaves, deep)
    return listed(
        _LIGHT,
        (150, 0.1, 32, 20, share(0.7), 1.0, 1e-3, 1e-3, False),
        (1200, 0.04, 64, 20, share(0.7), 0.9, 1e-3, 1e-3, False),
        (1000, 0.05, 89, 56, share(0.62), 1.0, 1e-3, 1e-3, False),
        (1500, 0.03, 128, 6, share(0.7), 1.0, 4e-3, 0.11, False),
        (1200, 0.05, 127, 6, share(0.83), 1.0, 1e-3, 1e-3, True),
    )


def of_hist_boosting(facts: TableFacts) -> tuple[Settings, ...]:
    """For scikit-learn's histogram boosting."""
    names = "iterations learning_rate max_leaf_nodes min_samples_leaf l2 max_features".split()

    def share(value: float) -> float:
        return narrowed(value, facts)

    usual = (120, 0.08, 31, leaf(20, facts), 1e-3, share(0.7))
    slow = (200, 0.05, 8, leaf(10, facts), 1.0, share(0.5))
    if facts.num_rows < SMALL:
        return listed(names, slow, usual, (300, 0.03, 4, 5, 0.1, share(0.4)))
    if facts.num_rows < LARGE:
        return listed(names, usual, slow, (300, 0.04, 48, 10, 0.1, share(0.5)))
    return listed(
        names, usual, (800, 0.06, 63, 20, 0.1, share(0.5)), (800, 0.04, 127, 10, 1.0, share(0.4))
    )


def of_svm(facts: TableFacts) -> tuple[Settings, ...]:
    """For support vectors with a kernel."""
    is_regression = facts.domain == "regression"
    names = ["c", "kernel", "gamma", "scaling", *(["epsilon"] if is_regression else [])]
    more = (0.1,) if is_regression else ()
    known = [
        (10.0, "rbf", 0.15, "each"),
        (3.0, "rbf", 0.5, "normal"),
        (2.0, "rbf", 0.06, "normal"),
        (1.0, "rbf", 1.0, "normal"),
        (30.0, "rbf", 0.3, "each"),
    ]
    if facts.num_columns >= MANY:
        known.insert(0, (8.0, "rbf", 1.0, "common"))
    return listed(names, *((*one, *more) for one in known))
