"""Histogram boosting, and gradient-boosted trees with exact splits."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reparto.search._rows import Matrix, Vector
from reparto.search._space import Choice, Float, Int, Space
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._params import Flag, Number, OneOf, Param, Params, Whole
from reparto.search.techniques._portfolio import LARGE, least_share, of_hist_boosting
from reparto.search.techniques._spared import Parted
from reparto.search.techniques._tree_params import (
    FEATURES,
    IDLE,
    MAX_BINS,
    MAX_DEPTH,
    MIN_SAMPLES_LEAF,
    SEED,
    THRESHOLD,
    THRESHOLDS,
    growth,
    told,
    told_features,
)
from reparto.spec import Domain, Settings, TableFacts

#: From so many rows on, a part of them can be spared to see when to stop.
ENOUGH_TO_STOP = round(0.7 * LARGE)  # also in a fold
#: This part of the rows is spared to see when to stop.
SPARED = 0.1
#: Training stops after so many iterations in which the spared part was not foretold better.
PATIENCE = 20

ITERATIONS = ("max_iter", "n_estimators", "numTrees", "num_iterations", "n_iter", "num_trees")
LEARNING_RATE = ("stepSize", "eta")
_LOSSES = OneOf(
    ("squared", "absolute"),
    (
        ("squared_error", "squared"),
        ("absolute_error", "absolute"),
        ("l2", "squared"),
        ("l1", "absolute"),
    ),
)
LOSS = Param("loss", _LOSSES, "squared", ("lossType", "objective"))


class _HistTrainer(EstimatorTrainer):
    prepares = "plain"
    scales_target = True  # what a split gains is compared with fixed small numbers
    goes_on = True

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._levels: list[Vector] | None = None  # of one that was read from a file

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn import ensemble

        settings, classes = self.settings, self.facts.is_classification
        losses = {"squared": "squared_error", "absolute": "absolute_error"}
        more = {} if classes else {"loss": losses[settings["loss"]]}
        chosen = (
            ensemble.HistGradientBoostingClassifier
            if classes
            else ensemble.HistGradientBoostingRegressor
        )
        return chosen(
            learning_rate=settings["learning_rate"],
            max_iter=settings["iterations"],
            max_leaf_nodes=settings["max_leaf_nodes"],
            max_depth=settings["max_depth"],
            min_samples_leaf=settings["min_samples_leaf"],
            l2_regularization=settings["l2"],
            max_features=settings["max_features"],
            max_bins=min(255, settings["max_bins"]),
            categorical_features=self._categories() or None,
            early_stopping=self._stops(num_rows) and (not self.has_kin or bool(self._apart())),
            n_iter_no_change=PATIENCE,
            warm_start=True,
            random_state=self.seed,
            **more,
        )

    def _stops(self, num_rows: int) -> bool:
        stops = self.settings["early_stopping"]
        if stops is None:
            stops = num_rows >= ENOUGH_TO_STOP
        # Rows are spared class by class, so each has to have some.
        num_classes = 2 if self._counts is None else len(self._counts)
        is_rare = self._counts is not None and int(self._counts.min()) < 2
        return bool(stops) and not is_rare and round(SPARED * num_rows) >= 2 * num_classes

    def _categories(self) -> list[int]:
        """Those with so few levels that each has a bin; others are taken as numbers."""
        most = min(255, self.settings["max_bins"])
        return [
            place
            for place, column in enumerate(self.facts.columns)
            if column.kind == "category" and len(column.levels) <= most
        ]

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        self.estimator.max_iter = max(1, round(share * self.settings["iterations"]))
        x = _finite(x)
        parts = self._apart() if self.has_kin and self.estimator.early_stopping else None
        if parts is None:  # where rows are spared at random it does so itself, class by class
            self.estimator.fit(x, y)
            return
        assert y is not None, "boosting has a target"
        known, spared = parts.kept, parts.spared
        self.estimator.fit(x[known], y[known], X_val=x[spared], y_val=y[spared])

    def _apart(self) -> Parted | None:
        """Rows with whole groups spared, or the newest ones."""
        assert self._rows is not None
        return self.parted(round(SPARED * len(self._rows)))

    def answer(self, x: Matrix) -> Vector:
        x = _finite(x)
        return super().answer(x if self._levels is None else self._by_level(x))

    def _by_level(self, x: Matrix) -> Matrix:
        """Categories first, as places of levels that were there; the same as scikit-learn does."""
        assert self._levels is not None
        places = np.flatnonzero(self.estimator.is_categorical_)
        found = np.full((x.shape[0], len(places)), np.nan)
        for index, (place, levels) in enumerate(zip(places, self._levels, strict=True)):
            column = x[:, place]
            at = np.minimum(np.searchsorted(levels, column), max(0, len(levels) - 1))
            is_known = np.isin(column, levels)
            found[is_known, index] = at[is_known]
        return np.concatenate([found, x[:, ~self.estimator.is_categorical_]], axis=1)

    def state(self) -> dict[str, Any]:
        """Levels instead of scikit-learn's encoder, which holds functions: none are ever read."""
        state = super().state()
        estimator = state["estimator"]
        levels = self._levels
        if estimator is not None and estimator._preprocessor is not None:
            encoder = estimator._preprocessor.named_transformers_["encoder"]
            levels = [one[np.isfinite(one)] for one in encoder.categories_]
            estimator = copy.copy(estimator)
            estimator._preprocessor = None
        return {**state, "estimator": estimator, "levels": levels}

    def restore(self, state: Mapping[str, Any]) -> None:
        """With the levels."""
        super().restore(state)
        self._levels = state["levels"]


class _ExactTrainer(EstimatorTrainer):
    prepares = "filled"
    scales_target = True  # a variance below 1e-16 is never split
    goes_on = True

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn import ensemble

        settings, classes = self.settings, self.facts.is_classification
        losses = {"squared": "squared_error", "absolute": "absolute_error"}
        more = {} if classes else {"loss": losses[settings["loss"]]}
        chosen = (
            ensemble.GradientBoostingClassifier if classes else ensemble.GradientBoostingRegressor
        )
        features = told_features(settings["max_features"], num_columns, auto=1.0)
        return chosen(
            n_estimators=settings["iterations"],
            learning_rate=settings["learning_rate"],
            subsample=settings["subsampling_rate"],
            max_features=features,
            warm_start=True,
            random_state=self.seed,
            **told(settings, self._scale),
            **more,
        )

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        self.estimator.n_estimators = max(1, round(share * self.settings["iterations"]))
        self.estimator.fit(x, y)

    def weights(self) -> Vector | None:
        found: Vector = self.estimator.feature_importances_
        return found


def _finite(x: Matrix) -> Matrix:
    """The same rows, where nothing is infinite."""
    with np.errstate(invalid="ignore"):
        if not np.isinf(x).any():
            return x
        return np.clip(x, -3e38, 3e38)


class HistBoosting(EstimatorTechnique):
    """Boosted trees over histograms of the columns: scikit-learn's, after LightGBM."""

    kind = "hist-boosting"
    domains = ("regression", "binary", "multiclass")
    resource = "iterations"
    trains = _HistTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        own = (
            Param("iterations", Whole(1), 100, ITERATIONS),
            Param("learning_rate", Number(0.0, above=True), 0.1, LEARNING_RATE),
            Param("max_leaf_nodes", Whole(2), 31, ("num_leaves",)),
            MAX_DEPTH,
            Param(MIN_SAMPLES_LEAF.name, MIN_SAMPLES_LEAF.kind, 20, MIN_SAMPLES_LEAF.also),
            Param("l2", Number(0.0), 0.0, ("l2_regularization", "reg_lambda", "lambda_l2")),
            Param("max_features", Number(0.0, 1.0, above=True), 1.0, ("featureSubsetStrategy",)),
            Param("max_bins", Whole(2), 255),
            Param("early_stopping", Flag(), None),
            SEED,
        )
        more = (LOSS,) if domain == "regression" else (*THRESHOLDS, THRESHOLD)
        return Params(self.kind, (*own, *more, *IDLE))

    def space(self, facts: TableFacts) -> Space:
        """Steps, their size, and how much each tree may follow the rows."""
        return {
            "iterations": Int(30, 800, log=True),
            "learning_rate": Float(0.01, 0.3, log=True),
            "max_leaf_nodes": Int(4, 128, log=True),
            "min_samples_leaf": Int(2, 100, log=True),
            "l2": Float(1e-3, 30.0, log=True),
            "max_features": Float(least_share(facts), 1.0),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Known ones, by the size of the table."""
        return of_hist_boosting(facts)


class GradientBoostedTrees(EstimatorTechnique):
    """Boosted trees whose splits are exact. System D's; defaults are Spark MLlib's."""

    kind = "gradient-boosted-trees"
    domains = ("regression", "binary", "multiclass")
    resource = "iterations"
    takes_sparse = True
    is_modern = False
    slow_beyond_rows = 50_000
    trains = _ExactTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        of_trees = [one for one in growth(domain, max_depth=5) if one.name != "criterion"]
        impurity = Param(
            "impurity", OneOf(("variance", "gini", "entropy")), None, ("criterion",),
            unused="each tree is fitted to gradients, by their variance",
        )  # fmt: skip
        loss: tuple[Param, ...] = (
            Param("loss", OneOf(("logistic",), (("log_loss", "logistic"),)), None, ("lossType",)),
            *THRESHOLDS,
            THRESHOLD,
        )
        if domain == "regression":
            loss = (LOSS,)
        own = (
            Param("iterations", Whole(1), 20, ITERATIONS),
            Param("learning_rate", Number(0.0, 1.0, above=True), 0.1, LEARNING_RATE),
            Param("subsampling_rate", Number(0.0, 1.0, above=True), 1.0, ("subsample",)),
            Param("max_features", FEATURES, None, ("featureSubsetStrategy",)),
            SEED,
            Param(
                "validation_tol",
                Number(0.0),
                unused="no part of the rows is held out, so training is not stopped by it",
            ),
        )
        return Params(self.kind, (*own, *of_trees, *loss, impurity, MAX_BINS, *IDLE))

    def space(self, facts: TableFacts) -> Space:
        """Steps, their size, and depth."""
        return {
            "iterations": Int(20, 300, log=True),
            "learning_rate": Float(0.02, 0.3, log=True),
            "max_depth": Int(2, 8),
            "min_samples_leaf": Int(1, 32, log=True),
            "subsampling_rate": Choice((0.5, 0.7, 0.85, 1.0)),
            "max_features": Choice(("all", "sqrt", "onethird")),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Friedman's, then a stochastic one."""
        return (
            {"iterations": 100, "max_depth": 3},
            {
                "iterations": 200,
                "learning_rate": 0.05,
                "max_depth": 4,
                "subsampling_rate": 0.7,
                "max_features": "sqrt",
            },
        )
