"""Decision tree, random forest and extra trees."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from reparto.search._rows import Matrix, Vector
from reparto.search._space import Choice, Float, Int, Space
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._params import Flag, Number, Param, Params, Whole
from reparto.search.techniques._portfolio import listed
from reparto.search.techniques._prepare import LARGEST
from reparto.search.techniques._tree_params import (
    FEATURES,
    IDLE,
    MAX_BINS,
    SEED,
    THRESHOLD,
    THRESHOLDS,
    growth,
    told,
    told_features,
)
from reparto.spec import Domain, Settings, TableFacts

#: Beyond so many leaves a tree only grows in size.
MOST_LEAVES = 15_000


class _TreeTrainer(EstimatorTrainer):
    prepares = "plain"
    scales_target = True  # a variance below 1e-16 is never split

    def _fit_for_trees(self, x: Matrix) -> Matrix:
        """Trees look at float32: what is beyond it is its end."""
        if not isinstance(x, np.ndarray):
            return x  # the preparation has seen to it
        if not x.size or -LARGEST <= np.fmin.reduce(x, axis=None) <= LARGEST >= np.fmax.reduce(
            x, axis=None
        ):
            # Whether a value is missing is asked in a way that wants to be able to write.
            locked = x.dtype == np.float32 and not x.flags.writeable
            return np.array(x) if locked and np.isnan(x.sum()) else x
        return np.clip(x, -LARGEST, LARGEST)

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        self.estimator.fit(self._fit_for_trees(x), y)

    def answer(self, x: Matrix) -> Vector:
        return super().answer(self._fit_for_trees(x))

    def weights(self) -> Vector | None:
        found: Vector = self.estimator.feature_importances_
        return found


class _DecisionTreeTrainer(_TreeTrainer):
    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

        chosen = DecisionTreeRegressor
        if self.facts.is_classification:
            chosen = DecisionTreeClassifier
        features = told_features(self.settings["max_features"], num_columns, auto=1.0)
        return chosen(
            random_state=self.seed, max_features=features, **told(self.settings, self._scale)
        )


class _ForestTrainer(_TreeTrainer):
    goes_on = True
    are_extra: ClassVar[bool] = False

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn import ensemble

        family = "ExtraTrees" if self.are_extra else "RandomForest"
        classes = self.facts.is_classification
        chosen = getattr(ensemble, family + ("Classifier" if classes else "Regressor"))
        auto: float | str = "sqrt" if classes else (1.0 if self.are_extra else 1.0 / 3.0)
        settings = self.settings
        rate = settings["subsampling_rate"]
        bootstrap = settings["bootstrap"]
        if bootstrap is None:
            bootstrap = not self.are_extra or rate < 1.0
        return chosen(
            n_estimators=settings["num_trees"],
            max_features=told_features(settings["max_features"], num_columns, auto=auto),
            bootstrap=bootstrap,
            max_samples=rate if bootstrap and rate < 1.0 else None,
            n_jobs=self.threads,
            random_state=self.seed,
            warm_start=True,
            **{
                **told(settings, self._scale),
                "max_leaf_nodes": settings["max_leaf_nodes"] or MOST_LEAVES,
            },
        )

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        # Each tree's seed follows from its number: in parts or at once, it is the same forest.
        self.estimator.n_estimators = max(1, round(share * self.settings["num_trees"]))
        super().grow(x, y, share)

    def answer(self, x: Matrix) -> Vector:
        found = super().answer(x)
        if not self.facts.is_classification:
            return found
        # That no tree has seen a class here does not mean that it cannot be.
        num_trees, num_classes = len(self.estimator.estimators_), found.shape[1]
        smooth: Vector = (found * num_trees + 1.0 / num_classes) / (num_trees + 1.0)
        return smooth

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        if self.estimator is not None:
            self.estimator.n_jobs = self.threads


class _ExtraTreesTrainer(_ForestTrainer):
    are_extra = True


class DecisionTree(EstimatorTechnique):
    """One tree. System D's; defaults are Spark MLlib's."""

    kind = "decision-tree"
    domains = ("regression", "binary", "multiclass")
    takes_sparse = True
    is_modern = False
    trains = _DecisionTreeTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        classes = (*THRESHOLDS, THRESHOLD) if domain != "regression" else ()
        own = (Param("max_features", FEATURES, None, ("featureSubsetStrategy",)), SEED)
        return Params(self.kind, (*growth(domain, max_depth=5), *own, MAX_BINS, *IDLE, *classes))

    def space(self, facts: TableFacts) -> Space:
        """Depth, leaves and impurity."""
        found: dict[str, Any] = {
            "max_depth": Int(2, 20),
            "min_samples_leaf": Int(1, 64, log=True),
        }
        if facts.is_classification:
            found["criterion"] = Choice(("gini", "entropy"))
        return found

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """A shallow one, then a deeper one with larger leaves."""
        return ({"max_depth": 5, "min_samples_leaf": 2}, {"max_depth": 10, "min_samples_leaf": 8})


class RandomForest(EstimatorTechnique):
    """Trees of samples of the rows, each split looking at some of the columns."""

    kind = "random-forest"
    domains = ("regression", "binary", "multiclass")
    resource = "iterations"
    takes_sparse = True
    trains = _ForestTrainer
    num_trees: ClassVar[int] = 200

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        classes = (*THRESHOLDS, THRESHOLD) if domain != "regression" else ()
        own = (
            Param("num_trees", Whole(1), self.num_trees, ("n_estimators", "maxIter")),
            Param("max_features", FEATURES, None, ("featureSubsetStrategy",)),
            Param(
                "subsampling_rate", Number(0.0, 1.0, above=True), 1.0, ("max_samples", "subsample")
            ),
            Param("bootstrap", Flag(), None),
            SEED,
        )
        return Params(self.kind, (*own, *growth(domain), MAX_BINS, *IDLE, *classes))

    def space(self, facts: TableFacts) -> Space:
        """Columns a split looks at, leaves, rows a tree sees. More trees are only better."""
        found: dict[str, Any] = {
            "max_features": Float(0.7 * _root(facts), 1.0),
            "min_samples_leaf": Int(1, 32, log=True),
            "subsampling_rate": Choice((0.5, 0.75, 1.0)),
        }
        if facts.is_classification:
            found["criterion"] = Choice(("gini", "entropy"))
        return found

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Breiman's, then smoother and greedier ones."""
        root, names = _root(facts), ("max_features", "min_samples_leaf")
        if facts.is_classification:
            return listed(
                (*names, "criterion", "subsampling_rate"),
                (root, 1, "entropy", 1.0),
                (root, 3, "gini", 1.0),
                (max(root, 0.5), 2, "entropy", 1.0),
            )
        return listed(
            (*names, "subsampling_rate"),
            (max(root, 0.6), 1, 1.0),
            (max(root, 0.33), 3, 1.0),
            (1.0, 2, 0.75),
        )


class ExtraTrees(RandomForest):
    """Trees of all rows, each split drawn at random and the best of these draws taken."""

    kind = "extra-trees"
    trains = _ExtraTreesTrainer

    def space(self, facts: TableFacts) -> Space:
        """Columns a split looks at, and leaves."""
        found: dict[str, Any] = {
            "max_features": Float(0.7 * _root(facts), 1.0),
            "min_samples_leaf": Int(1, 32, log=True),
        }
        if facts.is_classification:
            found["criterion"] = Choice(("gini", "entropy"))
        return found

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """The library's, then smoother ones."""
        root, names = _root(facts), ("max_features", "min_samples_leaf")
        if facts.is_classification:
            return listed(
                (*names, "criterion"),
                (root, 1, "entropy"),
                (max(root, 0.75), 2, "entropy"),
                (root, 4, "gini"),
                (max(root, 0.3), 12, "entropy"),
            )
        return listed(names, (1.0, 1), (max(root, 0.75), 4), (1.0, 3))


def _root(facts: TableFacts) -> float:
    """The root of the columns, as a share of them."""
    return 1.0 / math.sqrt(max(1, facts.num_columns))
