"""The metrics of regressions and classifications, in numpy; the same numbers as scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._rows import Answer, Vector
from reparto.spec import TableFacts

_Floats = NDArray[np.float64]


def regression(y: Vector, values: Vector) -> dict[str, float]:
    """RMSE, MAE and R²; the last one only where the truth varies."""
    truth = y.astype(np.float64, copy=False)
    off = values.astype(np.float64, copy=False) - truth
    square = float(np.mean(off * off))
    scores = {"rmse": square**0.5, "mae": float(np.mean(np.abs(off)))}
    variance = float(np.var(truth))
    if variance > 0.0 and truth.min() < truth.max():  # of equal ones it may be 1e-34
        scores["r2"] = 1.0 - square / variance
    return scores


def classification(facts: TableFacts, answer: Answer, y: Vector) -> dict[str, float]:
    """All metrics of classes that are defined for these rows."""
    num_classes = len(facts.classes)
    flat = y.astype(np.int64) * num_classes + answer.labels
    counts = np.bincount(flat, minlength=num_classes**2).astype(np.float64)
    confusion = counts.reshape(num_classes, num_classes)
    is_binary = facts.domain == "binary"
    scores = of_confusion(confusion, is_binary) | _of_ranking(answer, y, is_binary)
    if answer.are_probabilities:
        own = answer.values[np.arange(len(y)), y].astype(np.float64)
        scores["log-loss"] = float(-np.mean(np.log(np.clip(own, 1e-15, 1.0))))
    return scores


def of_confusion(confusion: _Floats, is_binary: bool) -> dict[str, float]:
    """From rows by truth and columns by answer."""
    total, right = confusion.sum(), np.diag(confusion)
    true, said = confusion.sum(axis=1), confusion.sum(axis=0)
    scores = {
        "accuracy": float(right.sum() / total),
        "balanced-accuracy": float(np.mean(right[true > 0] / true[true > 0])),
        "matthews": _matthews(total, right.sum(), true, said),
    }
    chance = float(true @ said / total**2)
    if chance < 1.0:
        scores["kappa"] = (scores["accuracy"] - chance) / (1.0 - chance)
    others = total - true
    each = {
        "precision": _ratio(right, said),
        "recall": _ratio(right, true),
        "specificity": _ratio(others - said + right, others),
        "f1": _ratio(2.0 * right, true + said),
    }
    if is_binary:
        undefined = {"recall": true[1] == 0, "specificity": others[1] == 0}
        kept = {name: float(of[1]) for name, of in each.items() if not undefined.get(name)}
    else:
        seen = true + said > 0  # a class that is neither there nor answered says nothing
        kept = {name: float(np.mean(of[seen])) for name, of in each.items()}
    return scores | kept


def _ratio(part: _Floats, whole: _Floats) -> _Floats:
    """Zero where there is nothing to divide: a class that was never answered has no precision."""
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


def _matthews(total: float, right: float, true: _Floats, said: _Floats) -> float:
    spread = (total**2 - said @ said) * (total**2 - true @ true)
    return float((right * total - true @ said) / np.sqrt(spread)) if spread > 0 else 0.0


def _of_ranking(answer: Answer, y: Vector, is_binary: bool) -> dict[str, float]:
    """AUROC and AUPR, over the classes that some rows are of and others are not."""
    values = answer.values
    if is_binary:
        # The difference of two probabilities would make new ties.
        score = values[:, 1] if answer.are_probabilities else values[:, 1] - values[:, 0]
        ranked: list[tuple[Any, Any]] = [(score, y == 1)]
    else:
        ranked = [(values[:, number], y == number) for number in range(values.shape[1])]
    told = [_areas(score, truth) for score, truth in ranked if 0 < truth.sum() < len(truth)]
    if not told:
        return {}
    roc, pr = np.mean(told, axis=0)
    return {"auroc": float(roc), "aupr": float(pr)}


def _areas(score: Vector, truth: NDArray[np.bool_]) -> tuple[float, float]:
    """The areas under the ROC curve, and under the steps of precision over recall."""
    order = np.argsort(score, kind="stable")[::-1]
    ranked, hit = score[order], truth[order]
    last = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(hit) - 1)  # of equal scores
    hits = np.cumsum(hit)[last].astype(np.float64)
    false = 1.0 + last - hits
    before, false_before = np.append(0.0, hits[:-1]), np.append(0.0, false[:-1])
    num_true, num_false = hits[-1], false[-1]
    roc = ((false - false_before) * (hits + before)).sum() / 2.0 / (num_true * num_false)
    pr = ((hits - before) * hits / (1.0 + last)).sum() / num_true
    return float(roc), float(pr)
