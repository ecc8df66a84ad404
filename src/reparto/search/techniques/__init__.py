"""Techniques, one file a family; `TECHNIQUES` is the public list."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from reparto.errors import MissingExtraError, UsageError
from reparto.search.techniques._base import Setting, Technique, Trainer
from reparto.search.techniques._boosting import GradientBoostedTrees, HistBoosting
from reparto.search.techniques._clusters import GaussianMixture, KMeans
from reparto.search.techniques._glm import GeneralizedLinear
from reparto.search.techniques._lightgbm import LightGBM
from reparto.search.techniques._linear import ElasticNet, LinearRegression
from reparto.search.techniques._logistic import LogisticRegression
from reparto.search.techniques._naive_bayes import NaiveBayes
from reparto.search.techniques._names import kind_named
from reparto.search.techniques._neighbors import KNeighbors
from reparto.search.techniques._network import Network
from reparto.search.techniques._perceptron import MultilayerPerceptron
from reparto.search.techniques._svm import SVM, LinearSVM
from reparto.search.techniques._trees import DecisionTree, ExtraTrees, RandomForest
from reparto.spec import TableFacts

__all__ = [
    "TECHNIQUES",
    "Setting",
    "Technique",
    "Trainer",
    "setting_named",
    "technique_named",
    "techniques_for",
]

_ALL: tuple[Technique, ...] = (
    LightGBM(),
    LogisticRegression(),
    ElasticNet(),
    ExtraTrees(),
    SVM(),
    Network(),
    RandomForest(),
    HistBoosting(),
    KNeighbors(),
    KMeans(),
    GaussianMixture(),
    LinearRegression(),
    GeneralizedLinear(),
    DecisionTree(),
    GradientBoostedTrees(),
    LinearSVM(),
    NaiveBayes(),
    MultilayerPerceptron(),
)
#: By kind; in this order they are tried, so cheap and strong ones come first.
TECHNIQUES: Mapping[str, Technique] = {one.kind: one for one in _ALL}


def technique_named(name: str) -> Technique:
    """Find a technique by its name, or by what other programs call it.

    Args:
        name: ``random-forest``, ``RandomForestClassifier``, ``gbt``, ``LinearSVC``, …

    Raises:
        UsageError: If there is none of that name.

    Example:
        >>> technique_named("RandomForestClassifier").kind
        'random-forest'
    """
    return TECHNIQUES[kind_named(name, tuple(TECHNIQUES))]


def setting_named(technique: str, name: str, facts: TableFacts) -> str:
    """Our name of a technique's setting that a request may call otherwise.

    Args:
        technique: Its name, any spelling.
        name: Of the setting: ours, scikit-learn's or Spark MLlib's, in any spelling.
        facts: Of the table; some settings are there for some domains only.

    Raises:
        UsageError: If there is no such technique or setting; tells those nearly called so.

    Example:
        >>> setting_named("RandomForest", "minInstancesPerNode", facts)
        'min_samples_leaf'
    """
    return technique_named(technique).setting_named(name, facts)


def techniques_for(facts: TableFacts, asked: tuple[str, ...] = ()) -> list[Technique]:
    """Those that are to be tried on a table, the first one first.

    Args:
        facts: Of the table.
        asked: Names of those that are asked for; empty for all modern ones that suit.

    Raises:
        UsageError: If one that is asked for is unknown, or does not suit the table.
        MissingExtraError: If one that is asked for needs a package that is not installed.
    """
    if asked:
        found = list(dict.fromkeys(technique_named(name) for name in asked))
        for one in found:
            _refuse_unsuited(one, facts)
        return found
    return [one for one in TECHNIQUES.values() if one.is_modern and _suits(one, facts)]


def _suits(technique: Technique, facts: TableFacts) -> bool:
    most = technique.slow_beyond_rows
    return (
        facts.domain in technique.domains
        and (technique.takes_sparse or not facts.is_sparse)
        and (most is None or facts.num_rows <= most)
        and _is_installed(technique)
    )


def _is_installed(technique: Technique) -> bool:
    return not technique.needs or importlib.util.find_spec(technique.needs[0]) is not None


def _refuse_unsuited(technique: Technique, facts: TableFacts) -> None:
    suited = [one.kind for one in TECHNIQUES.values() if facts.domain in one.domains]
    if facts.domain not in technique.domains:
        raise UsageError(
            f"{technique.kind} is for {' and '.join(technique.domains)}, and this is a "
            f"{facts.domain} problem",
            remedy=f"take one of {', '.join(suited)}",
        )
    if facts.is_sparse and not technique.takes_sparse:
        dense = [
            one.kind
            for one in TECHNIQUES.values()
            if one.takes_sparse and facts.domain in one.domains
        ]
        raise UsageError(
            f"{technique.kind} cannot train on a sparse table",
            remedy=f"take one of {', '.join(dense)}",
        )
    if not _is_installed(technique):
        raise MissingExtraError(*technique.needs)
