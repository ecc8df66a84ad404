"""Silhouette: how much nearer a row is to its own cluster than to the next one.

Techniques scale columns as they like, and a silhouette can be compared only within one space. It
is therefore always worked out in the same one: missing values are medians, numbers have mean 0
and deviation 1, and a category is one column a level.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import Matrix, Vector
from reparto.spec import TableFacts

#: Every row is compared with every other one.
MOST_ROWS = 2000
_Floats = NDArray[np.float64]


def silhouette(facts: TableFacts, x: Matrix, clusters: Vector, seed: int) -> dict[str, float]:
    """Work it out on a sample; empty where there is but one cluster, or each row is one."""
    rows = np.arange(len(clusters))
    if len(rows) > MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, MOST_ROWS, replace=False))
    names, own = np.unique(clusters[rows], return_inverse=True)
    if not 1 < len(names) < len(rows):
        return {}
    part = x[rows].astype(np.float64)
    away = _distances(_sparse(part) if hasattr(part, "toarray") else _space(facts, part))
    member = np.eye(len(names))[own]
    sizes = member.sum(axis=0)
    to_each = away @ member
    all_ = np.arange(len(rows))
    inside = to_each[all_, own] / np.maximum(sizes[own] - 1, 1)  # itself is at no distance
    means = to_each / sizes
    means[all_, own] = np.inf
    outside = means.min(axis=1)
    wider = np.maximum(inside, outside)
    each = np.divide(outside - inside, wider, out=np.zeros_like(wider), where=wider > 0)
    each[sizes[own] == 1] = 0.0
    return {"silhouette": float(each.mean())}


def _space(facts: TableFacts, x: _Floats) -> _Floats:
    columns: list[_Floats] = []
    for place in range(x.shape[1]):
        column = x[:, place]
        about = facts.columns[place] if place < len(facts.columns) else None
        if about is not None and about.kind == "category":
            levels = np.arange(len(about.levels), dtype=np.float64)
            # 1/√2 so that two unlike levels are at distance 1
            columns.append((column[:, None] == levels) / np.sqrt(2.0))
        else:
            columns.append(_scaled(column)[:, None])
    return np.concatenate(columns, axis=1) if columns else np.zeros((len(x), 1))


def _scaled(column: _Floats) -> _Floats:
    there = np.isfinite(column)
    if not there.any():
        return np.zeros_like(column)
    filled = np.where(there, column, np.median(column[there]))
    deviation = filled.std()
    scaled: _Floats = (filled - filled.mean()) / (deviation if deviation > 0 else 1.0)
    return scaled


def _sparse(part: Any) -> Any:
    """Scaled but not moved, which no distance depends on, and which would fill it."""
    part.data = np.where(np.isfinite(part.data), part.data, 0.0)  # as most values are
    means = np.asarray(part.mean(axis=0)).ravel()
    squares = np.asarray(part.multiply(part).mean(axis=0)).ravel()
    deviations = np.sqrt(np.maximum(squares - means**2, 0.0))
    deviations[deviations == 0] = 1.0
    return part.multiply(1.0 / deviations).tocsr()


def _distances(points: Any) -> _Floats:
    products = points @ points.T
    products = products.toarray() if hasattr(products, "toarray") else products
    squares = np.diag(products)
    apart = squares[:, None] + squares - 2.0 * products
    np.fill_diagonal(apart, 0.0)
    distances: _Floats = np.sqrt(np.maximum(apart, 0.0))
    return distances
