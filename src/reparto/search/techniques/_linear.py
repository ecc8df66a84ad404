"""Linear regression (Spark MLlib's) and elastic net, for numbers and for classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reparto.errors import UsageError
from reparto.search._rows import Vector
from reparto.search._space import Choice, Float, Space
from reparto.search.techniques import _linear_params as common
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._logistic import logistic
from reparto.search.techniques._params import Any_, Number, OneOf, Param, Params
from reparto.search.techniques._prepare import Kind
from reparto.spec import Domain, Settings, TableFacts

#: Numbers that may be looked at for a logistic regression with an L1 penalty: some seconds.
MOST_STEPS = 1_000_000_000


class LinearTrainer(EstimatorTrainer):
    """Fits a line to a scaled target, as MLlib does."""

    scales_target = True

    def _preparation(self) -> Kind:
        if not self.settings["standardization"]:
            return "encoded"
        return "shaped" if self.settings["shaped"] else "scaled"

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn import linear_model

        settings = self.settings
        intercept = settings["fit_intercept"]
        if settings["loss"] == "huber":
            return linear_model.HuberRegressor(
                epsilon=settings["epsilon"],
                alpha=num_rows * settings["reg_param"],
                max_iter=settings["max_iter"],
                fit_intercept=intercept,
                tol=max(settings["tol"], 1e-8),
            )
        # MLlib divides by the deviation of the target, which is 1 here.
        penalty = settings["reg_param"] / self._scale
        mix = settings["elastic_net_param"]
        if penalty == 0:
            return linear_model.LinearRegression(fit_intercept=intercept)
        if mix == 0:
            return linear_model.Ridge(alpha=num_rows * penalty, fit_intercept=intercept)
        return linear_model.ElasticNet(
            alpha=penalty,
            l1_ratio=mix,
            fit_intercept=intercept,
            max_iter=max(1000, settings["max_iter"]),
            tol=max(settings["tol"], 1e-6),
            random_state=self.seed,
        )

    def weights(self) -> Vector | None:
        found: Vector = np.abs(np.atleast_2d(self.estimator.coef_)).sum(axis=0)
        return found


class ElasticNetTrainer(LinearTrainer):
    """The same with a penalty that does not depend on the target's deviation, and for classes."""

    def _preparation(self) -> Kind:
        return "shaped" if self.settings["shaped"] else "scaled"

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn import linear_model

        alpha, mix = self.settings["alpha"], self.settings["l1_ratio"]
        if self.facts.is_classification:
            return logistic(
                reg_param=alpha,
                mix=mix,
                num_rows=num_rows,
                max_iter=_affordable(num_rows * num_columns * len(self.facts.classes)),
                tol=1e-4,
                seed=self.seed,
            )
        if mix == 0:
            return linear_model.Ridge(alpha=max(num_rows * alpha, 1e-9))
        return linear_model.ElasticNet(
            alpha=max(alpha, 1e-9), l1_ratio=mix, max_iter=2000, random_state=self.seed
        )


def _affordable(size: int) -> int:
    """Passes over the rows: with an L1 penalty each is slow, and the first ones do the most."""
    return max(10, min(300, MOST_STEPS // max(1, size)))


class LinearRegression(EstimatorTechnique):
    """A line. System D's; settings and penalties are Spark MLlib's."""

    kind = "linear-regression"
    domains = ("regression",)
    takes_sparse = True
    is_modern = False
    trains = LinearTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        solvers = OneOf(("auto", "normal", "l-bfgs"), (("lbfgs", "l-bfgs"),))
        return Params(
            self.kind,
            (
                common.REG_PARAM,
                common.ELASTIC_NET,
                common.MAX_ITER,
                common.tolerance(1e-6),
                common.FIT_INTERCEPT,
                common.STANDARDIZATION,
                Param(
                    "loss", OneOf(("squared", "huber"), (("squaredError", "squared"),)), "squared"
                ),
                Param("epsilon", Number(1.0, above=True), 1.35),
                common.SHAPED,
                Param("solver", solvers, "auto", unused="each penalty has its own solver"),
                Param("seed", Any_(), unused="nothing of it is random"),
                *common.IDLE,
            ),
        )

    def check_read(self, read: Mapping[str, Any], facts: TableFacts) -> None:
        """Huber's loss has no L1 penalty, on Spark either."""
        if read["loss"] == "huber" and read["elastic_net_param"] > 0:
            raise UsageError(
                f"{self.kind}: the loss huber takes no L1 penalty, and elastic_net_param is "
                f"{read['elastic_net_param']:g}",
                remedy="set elastic_net_param to 0, or the loss to squared",
            )

    def space(self, facts: TableFacts) -> Space:
        """The penalty."""
        return {
            "reg_param": Float(1e-5, 100.0, log=True),
            "elastic_net_param": Choice((0.0, 0.25, 0.5, 0.75, 1.0)),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Nearly none, some."""
        return (
            {"reg_param": 0.01, "elastic_net_param": 0.0},
            {"reg_param": 0.1, "elastic_net_param": 0.5},
        )


class ElasticNet(EstimatorTechnique):
    """Linear or logistic regression whose penalty is part L1, part L2."""

    kind = "elastic-net"
    domains = ("regression", "binary", "multiclass")
    takes_sparse = True
    trains = ElasticNetTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        alpha = Param("alpha", Number(0.0), 0.01, ("regParam", "lambda"))
        mix = Param("l1_ratio", Number(0.0, 1.0), 0.5, ("elasticNetParam",))
        return Params(self.kind, (alpha, mix, common.SHAPED, common.SEED))

    def space(self, facts: TableFacts) -> Space:
        """The penalty, and whether long-tailed columns are bent."""
        return {
            "alpha": Float(1e-5, 1.0, log=True),
            "l1_ratio": Choice((0.0, 0.1, 0.5, 0.9, 1.0)),
            "shaped": Choice((False, True)),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Weak penalties of each kind."""
        if facts.is_classification:
            return (
                {"alpha": 0.001, "l1_ratio": 0.5, "shaped": True},
                {"alpha": 0.003, "l1_ratio": 1.0, "shaped": False},
            )
        return (
            {"alpha": 0.001, "l1_ratio": 0.0, "shaped": False},
            {"alpha": 0.01, "l1_ratio": 0.5, "shaped": True},
            {"alpha": 0.03, "l1_ratio": 1.0, "shaped": False},
        )
