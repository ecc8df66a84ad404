"""Metrics worked out by the cluster: the same numbers as `metrics.scores_of`, for any many rows.

predictions ─┬─ by class and answer ───► counts, log loss ──► all metrics of a confusion matrix
             └─ by class and score ────► hits and rows ─────► areas under ROC and precision-recall
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import Answer, Rows
from reparto.search._score import of_confusion
from reparto.search._spark._read import Frame
from reparto.search._spark._typed import LABEL, ROW
from reparto.search.metrics import constant_class, scores_of
from reparto.spec import TableFacts

if TYPE_CHECKING:
    from reparto.search._spark._source import SparkSource

PREDICTION, VALUES = "prediction", "scores"
#: With no more different scores than that, all of them are brought here.
MOST_SCORES = 200_000
#: Else they are first put together to about so many for each class.
BINS = 5000

_Floats = NDArray[np.float64]


def scores_on_cluster(
    predicted: Frame, facts: TableFacts, *, are_probabilities: bool
) -> dict[str, float]:
    """All metrics of a regression or a classification.

    Args:
        predicted: Rows with ``label``, ``prediction``, and of classes ``scores``, an array.
        facts: Of the table.
        are_probabilities: Whether the scores are.

    Raises:
        ValueError: If some predictions are no numbers: no score says that.
    """
    if facts.domain == "regression":
        return _regression(predicted)
    return _classification(predicted, facts, are_probabilities=are_probabilities)


def _regression(predicted: Frame) -> dict[str, float]:
    from pyspark.sql import functions as f

    off = f.col(PREDICTION) - f.col(LABEL)
    row = predicted.agg(
        f.count(f.lit(1)),
        f.sum(_is_none(f.col(PREDICTION)).cast("int")),
        f.avg(off * off),
        f.avg(f.abs(off)),
        f.var_pop(LABEL),
    ).collect()[0]
    num_rows, bad = int(row[0]), int(row[1] or 0)
    _refuse_bad(bad, num_rows)
    if not num_rows:
        raise ValueError("no rows are tested")
    scores = {"rmse": float(row[2]) ** 0.5, "mae": float(row[3])}
    if row[4] and row[4] > 0:
        scores["r2"] = 1.0 - float(row[2]) / float(row[4])
    return scores


def _is_none(column: Any) -> Any:
    from pyspark.sql import functions as f

    return column.isNull() | f.isnan(column) | (f.abs(column) == math.inf)


def _refuse_bad(bad: int, num_rows: int) -> None:
    if bad:
        raise ValueError(f"the model answers with no number for {bad} of {num_rows} rows")


def _classification(
    predicted: Frame, facts: TableFacts, *, are_probabilities: bool
) -> dict[str, float]:
    from pyspark.sql import functions as f

    values = f.col(VALUES)
    own = f.least(f.greatest(f.get(values, f.col(LABEL).cast("int")), f.lit(1e-15)), f.lit(1.0))
    found = (
        predicted.groupBy(LABEL, PREDICTION)
        .agg(
            f.count(f.lit(1)),
            f.sum(-f.log(own)),
            f.sum(f.exists(values, lambda it: f.isnan(it)).cast("int")),
        )
        .collect()
    )
    size = len(facts.classes)
    confusion = np.zeros((size, size))
    for row in found:
        confusion[int(row[0]), int(row[1])] = row[2]
    num_rows = int(confusion.sum())
    if not num_rows:
        raise ValueError("no rows are tested")
    _refuse_bad(sum(int(row[4] or 0) for row in found), num_rows)
    scores = of_confusion(confusion, facts.domain == "binary")
    scores |= _ranking(predicted, facts, num_rows, are_probabilities=are_probabilities)
    if are_probabilities:
        scores["log-loss"] = math.fsum(float(row[3]) for row in found) / num_rows
    return scores


def _ranking(
    predicted: Frame, facts: TableFacts, num_rows: int, *, are_probabilities: bool
) -> dict[str, float]:
    """AUROC and AUPR, over the classes that some rows are of and others are not."""
    from pyspark.sql import functions as f

    values, label = f.col(VALUES), f.col(LABEL)
    if facts.domain == "binary":
        one = f.get(values, f.lit(1))
        one = one if are_probabilities else one - f.get(values, f.lit(0))
        ranked = predicted.select(f.lit(1).alias("cls"), one.alias("score"),
                                  (label == 1).cast("int").alias("hit"))  # fmt: skip
        num_ranked = num_rows
    else:
        ranked = predicted.select(label, f.posexplode(values).alias("cls", "score")).select(
            "cls", "score", (label == f.col("cls")).cast("int").alias("hit")
        )
        num_ranked = num_rows * len(facts.classes)
    grouped = ranked.groupBy("cls", "score").agg(
        f.sum("hit").alias("hits"), f.count(f.lit(1)).alias("rows")
    )
    if num_ranked > MOST_SCORES:
        grouped = _binned(grouped, num_ranked // len(facts.classes))
    columns = np.array(
        [
            tuple(map(float, row))
            for row in grouped.select("cls", "score", "hits", "rows").collect()
        ]
    )
    told = []
    for number in np.unique(columns[:, 0]):
        part = columns[columns[:, 0] == number]
        part = part[np.argsort(-part[:, 1], kind="stable")]
        hits, rows = part[:, 2], part[:, 3]
        if 0 < hits.sum() < rows.sum():
            told.append(areas(hits, rows))
    if not told:
        return {}
    roc, pr = np.mean(told, axis=0)
    return {"auroc": float(roc), "aupr": float(pr)}


def _binned(grouped: Frame, per_class: int) -> Frame:
    """Neighbours among the scores put together; sorted by all machines, each a range of them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    grouped = grouped.persist()
    if grouped.count() <= MOST_SCORES:
        return grouped
    ranged = grouped.repartitionByRange("cls", "score").withColumn("part", f.spark_partition_id())
    inside = Window.partitionBy("cls", "part").orderBy("score").rowsBetween(
        Window.unboundedPreceding, Window.currentRow
    )  # fmt: skip
    each = max(1, per_class // BINS)
    bins = ranged.withColumn("bin", f.floor(f.sum("rows").over(inside) / f.lit(each)))
    return bins.groupBy("cls", "part", "bin").agg(
        f.min("score").alias("score"), f.sum("hits").alias("hits"), f.sum("rows").alias("rows")
    )


def areas(hits: _Floats, rows: _Floats) -> tuple[float, float]:
    """The areas under the ROC curve, and under the steps of precision over recall.

    Args:
        hits: Of each different score, the highest first, rows that are of the class.
        rows: All rows with that score.
    """
    seen, right = np.cumsum(rows), np.cumsum(hits)
    false = seen - right
    before, false_before = np.append(0.0, right[:-1]), np.append(0.0, false[:-1])
    roc = ((false - false_before) * (right + before)).sum() / 2.0 / (right[-1] * false[-1])
    pr = ((right - before) * right / seen).sum() / right[-1]
    return float(roc), float(pr)


def answer_of(predicted: Frame, facts: TableFacts, *, are_probabilities: bool) -> Answer:
    """What was predicted for some rows, brought here, in order."""
    is_classes = facts.is_classification
    rows = predicted.select(ROW, VALUES if is_classes else PREDICTION).collect()
    rows = sorted(rows, key=lambda row: int(row[0]))
    values = np.array([row[1] for row in rows], dtype=np.float64)
    if facts.domain == "clustering":
        return Answer(values.astype(np.int64))
    if is_classes:
        values = values.reshape(len(rows), len(facts.classes))
    return Answer(values, are_probabilities)


def scores_of_clusters(
    answer: Answer, facts: TableFacts, judged: Rows, seed: int
) -> dict[str, float]:
    """How well clusters are parted, in the same space as everywhere."""
    return scores_of(facts, answer, None, x=judged.x, seed=seed)


def baseline_of(source: SparkSource, metric: str) -> float | None:
    """What the best constant answer scores on the same folds; None if unknown."""
    facts: TableFacts = source.facts
    folds: list[dict[str, float]] = []
    for fold in range(source.num_folds):
        trained, tested = source.sums(fold)
        if facts.is_classification:
            folds.append(_constant_class(trained, tested, facts, metric))
        elif facts.target and trained[0] and tested[0]:
            mean = trained[1] / trained[0]
            square = (tested[2] - 2 * mean * tested[1]) / tested[0] + mean**2
            variance = tested[2] / tested[0] - (tested[1] / tested[0]) ** 2
            folds.append({"rmse": max(0.0, square) ** 0.5})
            if variance > 0:
                folds[-1]["r2"] = 1.0 - square / variance
    values = [one[metric] for one in folds if metric in one]
    return float(np.mean(values)) if values and len(values) == source.num_folds else None


def _constant_class(
    trained: _Floats, tested: _Floats, facts: TableFacts, metric: str
) -> dict[str, float]:
    size = len(facts.classes)
    confusion = np.zeros((size, size))
    best = constant_class(metric) if facts.domain == "binary" else None
    confusion[:, int(np.argmax(trained)) if best is None else best] = tested
    scores = of_confusion(confusion, facts.domain == "binary")
    shares = np.clip(trained / max(1.0, trained.sum()), 1e-15, 1.0)
    scores["log-loss"] = float(-(tested @ np.log(shares)) / tested.sum())
    scores["auroc"] = 0.5
    asked = [1] if facts.domain == "binary" else [i for i in range(size) if tested[i] > 0]
    scores["aupr"] = float(np.mean([tested[i] / tested.sum() for i in asked]))
    return scores
