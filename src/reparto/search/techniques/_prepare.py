"""Preparation: rows as an estimator wants them, by what the training rows say, and only they.

plain     themselves, nothing is copied; a column without any value is 0, and one whose values
          single precision could not tell apart is moved to 0 … 1
filled    plain, and no missing value: the median, and a column that says so
encoded   filled; one column for each level of a category; constant columns are left out
scaled    encoded; mean 0 and deviation 1
near      scaled, and nothing is farther away than `NEAR`: for what goes by distances
shaped    near, with long-tailed columns bent to a normal shape first
common    encoded; mean 0, and all columns divided by the same, as pixels want it

A csr matrix is divided by the deviation and not moved, so that zeros stay zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import Matrix
from reparto.spec import TableFacts

Kind = Literal["plain", "filled", "encoded", "scaled", "near", "shaped", "common"]

#: Of a category, so many levels get a column of their own, the most frequent ones.
MOST_LEVELS = 64
#: A column is bent if its skewness is beyond this.
SKEWED = 1.0
#: The shape of a column is kept as so many quantiles.
QUANTILES = 200
#: In deviations: what is farther away is as far, so that distances stay numbers.
FARTHEST, NEAR = 1e6, 5.0
#: Beyond this, float32 is infinite.
LARGEST = 3e38
#: Trees look at float32, and take values for the same that are nearer than 1e-7.
NARROW, HUGE = 1e-4, 1e30

_Floats = NDArray[np.float64]


class Preparation:
    """Learns from training rows, and does the same to others.

    Args:
        kind: See above.
        facts: Of the table.
        state: Of one that has learnt, as `state` tells it.
    """

    def __init__(
        self, kind: Kind, facts: TableFacts, state: Mapping[str, Any] | None = None
    ) -> None:
        self._kind, self._facts = kind, facts
        self._state: dict[str, Any] = dict(state or {})

    @property
    def state(self) -> dict[str, Any]:
        """All that it has learnt: numbers and arrays."""
        return self._state

    def fit(self, x: Matrix) -> Matrix:
        """Learn from these rows; returns them prepared."""
        if _is_sparse(x):
            is_scaled = self._kind not in ("plain", "filled", "encoded")
            self._state = _sparse_state(x, same=self._kind == "common") if is_scaled else {}
        elif self._kind == "plain":
            self._state = {"empty": _empty(x), **_moves(x)}
        elif self._kind == "filled":
            self._state = _moves(x)
            self._state.update(_filling(self._moved(x)))
        elif self._kind not in ("plain", "filled"):
            return self._fit_scaled(x)
        return self.transform(x)

    def transform(self, x: Matrix) -> Matrix:
        """The same for other rows."""
        if _is_sparse(x):
            return self._sparse(x)
        if self._kind == "plain":
            return self._moved(self._zeroed(x))
        if self._kind == "filled":
            return self._filled(self._moved(x))
        return self._scaled(x)

    def sources(self, num_columns: int) -> NDArray[np.int64]:
        """Of each prepared column, the place of the table's column that it comes from."""
        if "kept" not in self._state:
            filled: NDArray[np.int64] = self._state.get("missing", np.zeros(0, np.int64))
            return np.concatenate([np.arange(num_columns), filled])
        state = self._state
        return np.concatenate(
            [state["numbers"][state["kept"]], state["missing"], state["level_columns"]]
        ).astype(np.int64)

    def _zeroed(self, x: Matrix) -> Matrix:
        empty = self._state["empty"]
        if not len(empty):
            return x
        x = np.array(x)
        x[:, empty] = 0.0
        return x

    def _moved(self, x: Matrix) -> Matrix:
        places = self._state.get("moved", ())
        if not len(places):
            return x
        moved = np.array(x)
        with np.errstate(over="ignore"):
            moved[:, places] = (x[:, places] - self._state["lows"]) / self._state["spans"]
        return moved

    # Numbers that are missing, or are none.

    def _filled(self, x: Matrix) -> Matrix:
        bad = ~np.isfinite(x)
        missing: NDArray[np.int64] = self._state["missing"]
        if not bad.any() and not len(missing):
            return np.clip(x, -LARGEST, LARGEST) if np.abs(x).max(initial=0) > LARGEST else x
        filled = np.where(bad, self._state["medians"], np.clip(x, -LARGEST, LARGEST))
        return np.concatenate([filled, bad[:, missing]], axis=1) if len(missing) else filled

    # Scaled.

    def _fit_scaled(self, x: Matrix) -> Matrix:
        columns = self._facts.columns
        is_category = np.array([one.kind == "category" for one in columns], dtype=bool)
        numbers, categories = np.flatnonzero(~is_category), np.flatnonzero(is_category)
        part = _numbers_of(x, numbers)
        state = self._state = {"numbers": numbers, **_filling(part)}
        part = self._bent(_fill(part, state["medians"]), learn=self._kind == "shaped")
        means, deviations = _moments(part)
        kept = np.flatnonzero(deviations > 1e-12 * np.abs(means))
        if self._kind == "encoded":
            means, deviations = np.zeros_like(means), np.ones_like(deviations)
        if self._kind == "common" and len(kept):
            deviations = np.full_like(deviations, np.sqrt(np.mean(deviations[kept] ** 2)))
        state.update(kept=kept, means=means[kept], deviations=deviations[kept])
        state["missing"] = numbers[state["missing"]]
        state.update(_levels_of(x, categories))
        return self._joined(x, part)

    def _scaled(self, x: Matrix) -> Matrix:
        part = _fill(_numbers_of(x, self._state["numbers"]), self._state["medians"])
        return self._joined(x, self._bent(part, learn=False))

    def _joined(self, x: Matrix, part: _Floats) -> _Floats:
        """Scaled numbers, what is missing, and levels, side by side."""
        state = self._state
        kept = state["kept"]
        part = part if len(kept) == part.shape[1] else part[:, kept]
        scaled = (part - state["means"]) / state["deviations"]
        if self._kind != "encoded":
            most = NEAR if self._kind in ("near", "shaped") else FARTHEST
            np.clip(scaled, -most, most, out=scaled)
        parts = [scaled]
        if len(state["missing"]):
            parts.append((~np.isfinite(x[:, state["missing"]])).astype(np.float64))
        if len(state["level_columns"]):
            parts.append((x[:, state["level_columns"]] == state["levels"]).astype(np.float64))
        return np.concatenate(parts, axis=1) if len(parts) > 1 else scaled

    def _bent(self, part: _Floats, *, learn: bool) -> _Floats:
        if learn:
            self._state.update(_shapes_of(part))
        if "bent" not in self._state or not len(self._state["bent"]):
            return part
        bent = np.array(part)
        normal = self._state["normal"]
        for place, quantiles in zip(self._state["bent"], self._state["quantiles"], strict=True):
            column = part[:, place]
            # Twice, forwards and backwards, so that values that occur often are in their middle.
            low = np.interp(column, quantiles, normal)
            high = -np.interp(-column, -quantiles[::-1], -normal[::-1])
            bent[:, place] = 0.5 * (low + high)
        return bent

    # Sparse.

    def _sparse(self, x: Matrix) -> Matrix:
        if not np.isfinite(x.data).all():
            x = x.copy()  # rows are not ours to write to
            x.data = np.nan_to_num(x.data, nan=0.0, posinf=LARGEST, neginf=-LARGEST)
        if "scales" not in self._state:
            return x
        import scipy.sparse

        scales = self._state["scales"].astype(x.dtype)
        scaled = scipy.sparse.csr_matrix(
            (x.data * scales[x.indices], x.indices, x.indptr), x.shape
        )
        scaled.has_sorted_indices = x.has_sorted_indices
        return scaled


def is_sparse(x: Matrix) -> bool:
    """Whether it is a csr matrix."""
    return not isinstance(x, np.ndarray)


_is_sparse = is_sparse


def _numbers_of(x: Matrix, numbers: NDArray[np.int64]) -> _Floats:
    part = x if len(numbers) == x.shape[1] else x[:, numbers]
    return np.asarray(part, dtype=np.float64)


def _empty(x: Matrix) -> NDArray[np.int64]:
    """Columns without any number."""
    maybe = np.flatnonzero(~np.isfinite(x[0])) if len(x) else np.zeros(0, np.int64)
    return np.array([it for it in maybe if not np.isfinite(x[:, it]).any()], dtype=np.int64)


def _moves(x: Matrix) -> dict[str, Any]:
    """Columns that are moved, from where, and how wide they are."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = (
            np.asarray(it.reduce(x, axis=0), dtype=np.float64) for it in (np.fmin, np.fmax)
        )
        span = high - low
        least, most = np.sort(np.abs([low, high]), axis=0)
    # Of a single huge value among others nothing is gained.
    is_lost = (span < NARROW) | (span < NARROW * most) | (least > HUGE)
    places = np.flatnonzero(is_lost & (span > 0) & np.isfinite(span))
    return {"moved": places, "lows": low[places], "spans": span[places]}


def _filling(x: Matrix) -> dict[str, Any]:
    """Medians of all columns where any value is missing, and which columns these are."""
    medians = np.zeros(x.shape[1])
    missing = []
    if not np.isfinite(x).all():
        for place in range(x.shape[1]):
            there = np.isfinite(x[:, place])
            if there.any():
                medians[place] = np.median(x[there, place])
            if not there.all() and there.any():
                missing.append(place)
        there_all = np.isfinite(x).all(axis=0)
        assert not there_all[missing].any()
    else:  # one that is missing later is the median too
        medians = np.median(x, axis=0) if len(x) else medians
    return {"medians": medians.astype(np.float64), "missing": np.array(missing, dtype=np.int64)}


def _fill(part: _Floats, medians: _Floats) -> _Floats:
    finite = np.isfinite(part)
    return part if finite.all() else np.where(finite, part, medians)


def _moments(part: _Floats) -> tuple[_Floats, _Floats]:
    if not part.shape[1]:
        return np.zeros(0), np.zeros(0)
    return part.mean(axis=0), part.std(axis=0)


def _levels_of(x: Matrix, categories: NDArray[np.int64]) -> dict[str, Any]:
    """The levels that have a column of their own: those that occur, and not all the same."""
    columns: list[int] = []
    levels: list[float] = []
    for place in categories:
        values = x[:, place]
        there, counts = np.unique(values[np.isfinite(values)], return_counts=True)
        if not len(there) or (len(there) == 1 and counts[0] == len(values)):
            continue
        frequent = there[np.argsort(-counts, kind="stable")[:MOST_LEVELS]]
        columns += [int(place)] * len(frequent)
        levels += sorted(map(float, frequent))
    return {
        "level_columns": np.array(columns, dtype=np.int64),
        "levels": np.array(levels, dtype=np.float64),
    }


def _shapes_of(part: _Floats) -> dict[str, Any]:
    """Which columns have long tails, and their quantiles."""
    from scipy.special import ndtri

    means, deviations = _moments(part)
    safe = np.where(deviations > 0, deviations, 1.0)
    count = min(QUANTILES, max(2, len(part)))
    bent, quantiles = [], []
    places = (np.arange(count) + 0.5) / count
    for place in range(part.shape[1]):
        cubes = ((part[:, place] - means[place]) / safe[place]) ** 3
        if deviations[place] > 0 and abs(float(cubes.mean())) > SKEWED:
            bent.append(place)
            quantiles.append(np.quantile(part[:, place], places))
    return {
        "bent": np.array(bent, dtype=np.int64),
        "quantiles": np.array(quantiles, dtype=np.float64).reshape(len(bent), count),
        "normal": ndtri(places),
    }


def _sparse_state(x: Matrix, *, same: bool) -> dict[str, Any]:
    """Of each column, one over its deviation; 0 where it is constant. Or the same of all."""
    data = np.nan_to_num(np.asarray(x.data, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    num_rows, num_columns = x.shape
    sums = np.bincount(x.indices, data, minlength=num_columns)
    squares = np.bincount(x.indices, data**2, minlength=num_columns)
    variances = squares / num_rows - (sums / num_rows) ** 2
    deviations = np.sqrt(np.maximum(variances, 0.0))
    if same and deviations.any():
        deviations = np.where(deviations > 0, np.sqrt(np.mean(deviations**2)), 0.0)
    scales = np.zeros(num_columns)
    np.divide(1.0, deviations, out=scales, where=deviations > 1e-12)
    return {"scales": scales}
