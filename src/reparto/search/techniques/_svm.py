"""Support vectors: with kernels, and the linear machine of Spark MLlib."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search._rows import Vector
from reparto.search._space import Choice, Float, Space
from reparto.search.techniques import _linear_params as common
from reparto.search.techniques._calibrated import CalibratedTrainer
from reparto.search.techniques._estimator import EstimatorTechnique
from reparto.search.techniques._params import Any_, Flag, Number, OneOf, Param, Params, Whole
from reparto.search.techniques._portfolio import of_svm
from reparto.search.techniques._prepare import Kind
from reparto.search.techniques._tree_params import THRESHOLD, THRESHOLDS
from reparto.spec import Domain, Settings, TableFacts

#: A penalty of zero has no end with scikit-learn's solver; this is next to none.
LEAST_PENALTY = 1e-6
#: So many classes are told apart in pairs.
MOST_PAIRED = 15


class _KernelTrainer(CalibratedTrainer):
    scales_target = True

    def _preparation(self) -> Kind:
        return common.SCALINGS[self.settings["scaling"]]

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn import svm

        settings = self.settings
        told: dict[str, Any] = {
            "C": settings["c"],
            "kernel": settings["kernel"],
            # Columns have deviation 1, so rows are about √columns apart.
            "gamma": settings["gamma"] / num_columns,
            "degree": settings["degree"],
            "coef0": settings["coef0"],
            "tol": settings["tol"],
            "max_iter": settings["max_iter"],
        }
        if self.facts.is_classification:
            weight = "balanced" if settings["balanced"] else None
            told["decision_function_shape"] = "ovo" if self._is_pairwise() else "ovr"
            return svm.SVC(**told, class_weight=weight, random_state=self.seed)
        return svm.SVR(**told, epsilon=settings["epsilon"])

    def _is_pairwise(self) -> bool:
        """Distances of each pair of classes say more than one for each class, if they are few."""
        return self._present is not None and 2 < len(self._present) <= MOST_PAIRED

    def _votes(self, num_classes: int) -> NDArray[np.float64]:
        if not self._is_pairwise():
            return super()._votes(num_classes)
        pairs = list(itertools.combinations(range(num_classes), 2))
        votes = np.zeros((len(pairs), num_classes))
        for row, (first, second) in enumerate(pairs):
            votes[row, first], votes[row, second] = 1.0, -1.0
        return votes


class _LinearTrainer(CalibratedTrainer):
    def _preparation(self) -> Kind:
        return "scaled" if self.settings["standardization"] else "encoded"

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn.svm import LinearSVC

        settings = self.settings
        is_hinge = settings["loss"] == "hinge"
        return LinearSVC(
            loss=settings["loss"].replace("-", "_"),
            dual=is_hinge or "auto",
            C=1.0 / (num_rows * max(settings["reg_param"], LEAST_PENALTY)),
            fit_intercept=settings["fit_intercept"],
            # The intercept is a column of its own, and is to be penalised as little as can be.
            intercept_scaling=10.0,
            max_iter=settings["max_iter"] * (10 if is_hinge else 1),
            tol=max(settings["tol"], 1e-6),
            random_state=self.seed,
        )

    def _thresholds(self, num_classes: int) -> Vector | None:
        """MLlib's threshold is a distance; it is worth some probability."""
        margin = self.settings["margin_threshold"]
        if margin is None or self._weights is None or self._shift is None:
            return None
        share = 1.0 / (1.0 + np.exp(-(margin * self._weights[0, 0] + self._shift[0])))
        found: Vector = np.clip([1.0 - share, share], 1e-12, 1.0)
        return found

    def weights(self) -> Vector | None:
        found: Vector = np.abs(np.atleast_2d(self.estimator.coef_)).sum(axis=0)
        return found


class SVM(EstimatorTechnique):
    """Support vector machine with a kernel."""

    kind = "svm"
    domains = ("regression", "binary", "multiclass")
    takes_sparse = True
    slow_beyond_rows = 10_000
    trains = _KernelTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        kernels = OneOf(("rbf", "linear", "poly", "sigmoid"), (("gaussian", "rbf"),))
        own = (
            Param("c", Number(0.0, above=True), 1.0),
            Param("kernel", kernels, "rbf"),
            Param("gamma", Number(0.0, above=True), 1.0),
            Param("degree", Whole(1), 3),
            Param("coef0", Number(), 0.0),
            common.tolerance(1e-3),
            Param("max_iter", Whole(1), 1_000_000),
            common.SCALING,
            common.SEED,
        )
        more: tuple[Param, ...] = (Param("epsilon", Number(0.0), 0.1),)
        if domain != "regression":
            more = (Param("balanced", Flag(), False), *THRESHOLDS, THRESHOLD)
        return Params(self.kind, (*own, *more))

    def space(self, facts: TableFacts) -> Space:
        """How much a row on the wrong side costs, and how far a row reaches."""
        found: dict[str, Any] = {
            "c": Float(0.03, 300.0, log=True),
            "kernel": Choice(("rbf",)),
            "gamma": Float(0.03, 10.0, log=True),
            "scaling": Choice(tuple(common.SCALINGS)),
        }
        if facts.domain == "regression":
            found["epsilon"] = Float(0.01, 0.5, log=True)
        return found

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Known ones."""
        return of_svm(facts)


class LinearSVM(EstimatorTechnique):
    """A border that is a plane. System D's; of several classes, each against the others."""

    kind = "linear-svm"
    domains = ("binary", "multiclass")
    takes_sparse = True
    is_modern = False
    trains = _LinearTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set; ``threshold`` is MLlib's, of the distance, which is 0 there."""
        losses = OneOf(("hinge", "squared-hinge"))
        return Params(
            self.kind,
            (
                common.REG_PARAM,
                common.MAX_ITER,
                common.tolerance(1e-6),
                common.FIT_INTERCEPT,
                common.STANDARDIZATION,
                Param("loss", losses, "hinge"),
                Param("margin_threshold", Number(), None, ("threshold",)),
                common.SEED,
                Param("solver", Any_(), unused="there is one solver for each loss"),
                *common.IDLE,
            ),
        )

    def check_read(self, read: Mapping[str, Any], facts: TableFacts) -> None:
        """A threshold of the distance is for two classes."""
        if read["margin_threshold"] is not None and facts.domain != "binary":
            raise UsageError(
                f"{self.kind}: a threshold is for two classes, and there are {len(facts.classes)}",
                remedy="leave it out",
            )

    def space(self, facts: TableFacts) -> Space:
        """The penalty, and the loss."""
        return {
            "reg_param": Float(1e-5, 1.0, log=True),
            "loss": Choice(("hinge", "squared-hinge")),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Weak penalties."""
        return (
            {"reg_param": 0.005, "loss": "squared-hinge"},
            {"reg_param": 0.01, "loss": "hinge"},
        )
