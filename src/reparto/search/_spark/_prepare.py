"""Prepared: how rows become vectors for MLlib, by what the rows say that are trained on.

columns ── fill in medians ──► levels: one slot each, or a place ──► assemble ──► scale ──► vector

It is fitted once for each fold, and all candidates use the same: for MLlib its stages, and for a
model that was brought home plain numbers (`_slots.py` does the same with numpy).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from reparto.search._spark._read import Frame
from reparto.search._spark._typed import FEATURES, is_vector
from reparto.spec import TableFacts

#: ``plain``: numbers as they are, a slot for each level; ``placed``: a level is its place, for
#: trees, which part levels; ``scaled``: plain with mean 0 and deviation 1; ``counts``: plain and
#: nowhere below zero; ``bits``: one where it is above zero, else zero.
Way = Literal["plain", "placed", "scaled", "counts", "bits"]


@dataclass(frozen=True)
class Prepared:
    """What was learnt from the rows of a fold.

    Attributes:
        way: Of preparing.
        fills: By column, what stands for a missing number.
        lows: By column, what is taken off so that nothing is below zero.
        stages: Of MLlib, fitted.
        centers: Of each slot, taken off; empty for none.
        scales: Of each slot, by which it is multiplied; empty for none.
    """

    way: Way
    fills: dict[str, float]
    lows: dict[str, float]
    stages: tuple[Any, ...]
    centers: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()

    def apply(self, frame: Frame) -> Frame:
        """The same rows with their vectors."""
        from pyspark.sql import functions as f

        if self.fills:
            frame = frame.fillna(self.fills)
        for name, low in self.lows.items():
            frame = frame.withColumn(name, f.greatest(f.col(name) - f.lit(low), f.lit(0.0)))
        for stage in self.stages:
            frame = stage.transform(frame)
        return frame

    def state(self) -> dict[str, Any]:
        """Plain numbers that say the same."""
        return {
            "way": self.way,
            "fills": {name[1:]: value for name, value in self.fills.items()},
            "lows": {name[1:]: value for name, value in self.lows.items()},
            "centers": list(self.centers),
            "scales": list(self.scales),
        }


def num_slots(facts: TableFacts, way: Way) -> int:
    """Length of the vectors."""
    if way == "placed" or is_vector(facts):
        return facts.num_columns
    return sum(_width(len(one.levels)) if one.kind == "category" else 1 for one in facts.columns)


def _width(levels: int) -> int:
    return levels + 1  # one for what is missing, or was never seen


def prepare(frame: Frame, facts: TableFacts, way: Way) -> Prepared:
    """Learn from the rows that are trained on."""
    if is_vector(facts):
        return _of_vectors(frame, facts, way)
    numbers = [f"x{i}" for i, one in enumerate(facts.columns) if one.kind != "category"]
    fills = _medians(frame, numbers)
    lows = _lows(frame, numbers, fills) if way == "counts" else {}
    first = Prepared(way, fills, lows, tuple(_assembly(frame, facts, way)))
    if way == "bits":
        return Prepared(way, fills, lows, (*first.stages, _bits()))
    if way != "scaled":
        return first
    scaler = _scaler(with_mean=True).fit(first.apply(frame))
    centers, scales = _of_scaler(scaler, with_mean=True)
    return Prepared(way, fills, lows, (*first.stages, scaler), centers, scales)


def _of_vectors(frame: Frame, facts: TableFacts, way: Way) -> Prepared:
    """Vectors stay as sparse as they are."""
    if way == "bits":
        return Prepared(way, {}, {}, (_Renamed(), _bits()))
    if way != "scaled":
        return Prepared(way, {}, {}, ())
    with_mean = not facts.is_sparse
    scaler = _scaler(with_mean=with_mean).fit(_Renamed().transform(frame))
    centers, scales = _of_scaler(scaler, with_mean=with_mean)
    return Prepared(way, {}, {}, (_Renamed(), scaler), centers, scales)


class _Renamed:
    """Vectors of a file, under the name that assembled ones have before they are scaled."""

    def transform(self, frame: Frame) -> Frame:
        return frame.withColumnRenamed(FEATURES, _ASSEMBLED)


_ASSEMBLED = "assembled"


def _medians(frame: Frame, numbers: list[str]) -> dict[str, float]:
    """As MLlib's Imputer has them, but a column without any value is no failure."""
    if not numbers:
        return {}
    found = frame.stat.approxQuantile(numbers, [0.5], 0.001)
    return {
        name: float(values[0]) if values else 0.0
        for name, values in zip(numbers, found, strict=True)
    }


def _lows(frame: Frame, numbers: list[str], fills: dict[str, float]) -> dict[str, float]:
    from pyspark.sql import functions as f

    if not numbers:
        return {}
    row = frame.fillna(fills).agg(*[f.min(name) for name in numbers]).collect()[0]
    return {name: float(low) for name, low in zip(numbers, row, strict=True) if (low or 0.0) < 0}


def _assembly(frame: Frame, facts: TableFacts, way: Way) -> list[Any]:
    """MLlib's stages from columns to vectors."""
    from pyspark.ml.feature import VectorAssembler

    stages: list[Any] = []
    inputs, categories = [], []
    for place, column in enumerate(facts.columns):
        name = f"x{place}"
        if column.kind == "category":
            categories.append((name, len(column.levels)))
            name = f"p{place}" if way == "placed" else f"o{place}"
        inputs.append(name)
    if categories:
        stages.append(_Placed(categories))
        if way != "placed":
            stages.append(_one_hot(categories).fit(stages[0].transform(frame)))
    to = _ASSEMBLED if way in ("scaled", "bits") else FEATURES
    stages.append(VectorAssembler(inputCols=inputs, outputCol=to, handleInvalid="error"))
    return stages


class _Placed:
    """Levels as MLlib knows them: a place, and how many there are; the last one for all others."""

    def __init__(self, categories: list[tuple[str, int]]) -> None:
        self._categories = categories

    def transform(self, frame: Frame) -> Frame:
        from pyspark.sql import functions as f

        wanted = {}
        for name, count in self._categories:
            about = {"ml_attr": {"type": "nominal", "num_vals": _width(count), "name": name}}
            place = f.coalesce(f.col(name), f.lit(float(count)))
            wanted["p" + name[1:]] = place.alias("p" + name[1:], metadata=about)
        return frame.withColumns(wanted)


def _one_hot(categories: list[tuple[str, int]]) -> Any:
    """MLlib's encoder; what it would learn from data stands in the columns' metadata already."""
    from pyspark.ml.feature import OneHotEncoder

    names = ["p" + name[1:] for name, _ in categories]
    return OneHotEncoder(
        inputCols=names, outputCols=["o" + name[1:] for name in names], dropLast=False
    )


def _scaler(*, with_mean: bool) -> Any:
    from pyspark.ml.feature import StandardScaler

    return StandardScaler(
        withMean=with_mean, withStd=True, inputCol=_ASSEMBLED, outputCol=FEATURES
    )


def _of_scaler(model: Any, *, with_mean: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    deviations = model.std.toArray()
    scales = tuple(1.0 / one if one > 0 else 0.0 for one in map(float, deviations))
    return (tuple(map(float, model.mean.toArray())) if with_mean else ()), scales


def _bits() -> Any:
    from pyspark.ml.feature import Binarizer

    return Binarizer(threshold=0.0, inputCol=_ASSEMBLED, outputCol=FEATURES)
