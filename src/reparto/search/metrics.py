"""Metrics: how good an answer is, the best constant answer, and the names that people use.

Each is worked out here from a confusion matrix or a ranking, since a search asks for all of them
after every rung, and scikit-learn takes some milliseconds for each one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from reparto.errors import UsageError
from reparto.search._rows import Answer, Matrix, Vector
from reparto.search._score import classification, regression
from reparto.search._silhouette import silhouette
from reparto.spec import Domain, TableFacts

_CLASSES: tuple[Domain, ...] = ("binary", "multiclass")


@dataclass(frozen=True)
class Metric:
    """A way to say how good an answer is.

    Attributes:
        name: On the command line, in tables and files.
        label: For people.
        higher_is_better: Else lower is.
        domains: Where it can be asked for.
        needs_probabilities: Whether it is unknown of techniques that only tell classes apart.
    """

    name: str
    label: str
    higher_is_better: bool = True
    domains: tuple[Domain, ...] = _CLASSES
    needs_probabilities: bool = False


_KNOWN = (
    Metric("accuracy", "accuracy"),
    Metric("balanced-accuracy", "balanced accuracy"),
    Metric("precision", "precision"),
    Metric("recall", "recall"),
    Metric("specificity", "specificity"),
    Metric("f1", "F1"),
    Metric("matthews", "Matthews correlation"),
    Metric("kappa", "Cohen's kappa"),
    Metric("auroc", "area under the ROC curve"),
    Metric("aupr", "area under the precision-recall curve"),
    Metric("log-loss", "log loss", higher_is_better=False, needs_probabilities=True),
    Metric("rmse", "RMSE", higher_is_better=False, domains=("regression",)),
    Metric("mae", "MAE", higher_is_better=False, domains=("regression",)),
    Metric("r2", "R²", domains=("regression",)),
    Metric("silhouette", "silhouette", domains=("clustering",)),
)
#: By name. Of several classes, precision, recall, specificity, F1, AUROC and AUPR are means over
#: the classes, each against the others; of two, they are of the second one.
METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _KNOWN}

_DEFAULTS: Mapping[str, str] = {
    "binary": "matthews",
    "multiclass": "f1",
    "regression": "rmse",
    "clustering": "silhouette",
}

#: What other programs call them, without the signs between words.
_SPELLINGS: Mapping[str, str] = {
    **dict.fromkeys("acc categoricalaccuracy".split(), "accuracy"),
    **dict.fromkeys("balacc bac".split(), "balanced-accuracy"),
    **dict.fromkeys("precisionmacro ppv".split(), "precision"),
    **dict.fromkeys("recallmacro sensitivity tpr".split(), "recall"),
    **dict.fromkeys("specificitymacro tnr".split(), "specificity"),
    **dict.fromkeys("f1macro f1score macrof1".split(), "f1"),
    **dict.fromkeys("mcc matthewscorrcoef matthewscorrelation phi".split(), "matthews"),
    **dict.fromkeys("cohenkappa cohenskappa cohenkappascore".split(), "kappa"),
    **dict.fromkeys("auc rocauc rocaucovr aucroc areaunderroc rocaucscore".split(), "auroc"),
    **dict.fromkeys("prauc aucpr averageprecision ap areaunderpr".split(), "aupr"),
    **dict.fromkeys("crossentropy".split(), "log-loss"),
    **dict.fromkeys("rootmeansquarederror".split(), "rmse"),
    **dict.fromkeys("meanabsoluteerror".split(), "mae"),
    **dict.fromkeys("r2score rsquared r²".split(), "r2"),
    **dict.fromkeys("silhouettescore".split(), "silhouette"),
}


def default_metric(domain: Domain) -> str:
    """Return the name of the metric by which a domain's candidates are ranked if nobody says."""
    return _DEFAULTS.get(domain, "")


def metric_named(name: str, domain: Domain) -> Metric:
    """Find a metric by its name, or by what other programs call it.

    Args:
        name: ``f1``; ``roc_auc``, ``mcc``, ``neg_log_loss`` and the like are understood. Empty
            for the domain's own.
        domain: For which it is asked.

    Raises:
        UsageError: If there is none of that name, or it says nothing of that domain.

    Example:
        >>> metric_named("roc_auc", "binary").name
        'auroc'
    """
    own = [metric.name for metric in METRICS.values() if domain in metric.domains]
    remedy = f"take one of {', '.join(own)}" if own else "leave it out"
    plain = _plain(name or default_metric(domain))
    known = {**{_plain(name): name for name in METRICS}, **_SPELLINGS}
    found = known.get(plain) or known.get(plain.removeprefix("neg"))
    if found is None:
        close = difflib.get_close_matches(plain, [_plain(name) for name in own], 1)
        hint = f"did you mean {known[close[0]]}? " if close else ""
        raise UsageError(f"there is no metric {name!r}", remedy=hint + remedy)
    if found not in own:
        raise UsageError(f"the metric {found} says nothing of a {domain} problem", remedy=remedy)
    return METRICS[found]


def scores_of(
    facts: TableFacts, answer: Answer, y: Vector | None, *, x: Matrix = None, seed: int = 0
) -> dict[str, float]:
    """Work out all metrics of the table's domain.

    Args:
        facts: Of the table.
        answer: What a model says of some rows.
        y: What is true of them; None for clustering.
        x: Those rows; only a clustering is judged by them.
        seed: By which rows are drawn where there are many (silhouette).

    Returns:
        By name; a metric that is not defined here (AUROC where there is one class only) is left
        out.

    Raises:
        ValueError: If the answer holds NaN, or is not of that many rows: no score says that.
    """
    _check(facts, answer, y if facts.domain != "clustering" else x)
    if facts.domain == "clustering":
        return silhouette(facts, x, answer.values, seed)
    assert y is not None
    if facts.domain == "regression":
        return regression(y, answer.values)
    return classification(facts, answer, y)


def constant_class(metric: str) -> int | None:
    """Of two classes, the one that is best answered always; None: the one with more rows."""
    if metric in ("precision", "recall", "f1"):
        return 1
    return 0 if metric == "specificity" else None


def constant_answer(
    facts: TableFacts, y_train: Vector | None, num_rows: int, metric: str = ""
) -> Answer:
    """Answer without looking at the rows, and as well as that can be done.

    Args:
        facts: Of the table.
        y_train: What is known.
        num_rows: To be answered.
        metric: By which the answer is judged.

    Returns:
        The mean or the median, the shares of the classes or one class, or one cluster.
    """
    if facts.domain == "clustering" or y_train is None:
        return Answer(np.zeros(num_rows, np.int64))
    if facts.domain == "regression":
        middle = np.median(y_train) if metric == "mae" else np.mean(y_train, dtype=np.float64)
        return Answer(np.full(num_rows, middle, dtype=np.float64))
    if facts.domain == "binary" and (best := constant_class(metric)) is not None:
        return Answer(np.tile(np.eye(2)[best], (num_rows, 1)), are_probabilities=True)
    counts = np.bincount(y_train, minlength=len(facts.classes)).astype(np.float64)
    return Answer(np.tile(counts / counts.sum(), (num_rows, 1)), are_probabilities=True)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _check(facts: TableFacts, answer: Answer, rows: Matrix) -> None:
    num_rows = 0 if rows is None else int(rows.shape[0])
    values = answer.values
    shape = (num_rows, len(facts.classes)) if facts.is_classification else (num_rows,)
    if values.shape != shape:
        raise ValueError(f"the answer has the shape {values.shape}, not {shape}")
    bad = ~np.isfinite(values) if facts.domain == "regression" else np.isnan(values)
    if bad.any():
        count = int(bad.reshape(num_rows, -1).any(axis=1).sum())
        raise ValueError(f"the model answers with no number for {count} of {num_rows} rows")
