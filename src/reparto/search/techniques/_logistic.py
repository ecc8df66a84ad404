"""Logistic regression, of two classes and of several, by Spark MLlib's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reparto.errors import UsageError
from reparto.search._rows import Vector
from reparto.search._space import Choice, Float, Space
from reparto.search.techniques import _linear_params as common
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._params import OneOf, Param, Params
from reparto.search.techniques._prepare import Kind
from reparto.search.techniques._tree_params import THRESHOLD, THRESHOLDS
from reparto.spec import Domain, Settings, TableFacts


def logistic(
    *,
    reg_param: float,
    mix: float,
    num_rows: int,
    max_iter: int,
    tol: float,
    seed: int,
    fit_intercept: bool = True,
) -> Any:
    """scikit-learn's logistic regression with MLlib's penalty."""
    from sklearn.linear_model import LogisticRegression as Estimator

    return Estimator(
        C=np.inf if reg_param == 0 else 1.0 / (num_rows * reg_param),
        l1_ratio=mix if reg_param > 0 else 0.0,
        solver="lbfgs" if mix == 0 or reg_param == 0 else "saga",
        max_iter=max_iter,
        tol=tol,
        fit_intercept=fit_intercept,
        random_state=seed,
    )


class LogisticTrainer(EstimatorTrainer):
    """Logistic regression."""

    def _preparation(self) -> Kind:
        if not self.settings["standardization"]:
            return "encoded"
        return "shaped" if self.settings["shaped"] else "scaled"

    def make(self, num_rows: int, num_columns: int) -> Any:
        settings = self.settings
        made = logistic(
            reg_param=settings["reg_param"],
            mix=settings["elastic_net_param"],
            num_rows=num_rows,
            max_iter=settings["max_iter"],
            tol=max(settings["tol"], 1e-10),
            seed=self.seed,
            fit_intercept=settings["fit_intercept"],
        )
        assert self._present is not None
        if settings["family"] == "multinomial" and len(self._present) == 2:
            return _both_sides(made, settings, num_rows)
        return made

    def weights(self) -> Vector | None:
        found: Vector = np.abs(self.estimator.coef_).sum(axis=0)
        return found


def _both_sides(made: Any, settings: Mapping[str, Any], num_rows: int) -> Any:
    """Two classes, each with weights of its own.

    By symmetry these are w/2 and -w/2 of the binomial model, whose penalty is then
    ``reg_param · (mix · |w|₁ + (1 - mix) / 4 · |w|₂²)``: the L2 part is halved.
    """
    reg_param, mix = settings["reg_param"], settings["elastic_net_param"]
    l1, l2 = reg_param * mix, reg_param * (1.0 - mix) / 2.0
    if l1 + l2 > 0:
        made.set_params(C=1.0 / (num_rows * (l1 + l2)), l1_ratio=l1 / (l1 + l2))
    return made


class LogisticRegression(EstimatorTechnique):
    """Logistic regression. System D's binomial and multinomial one."""

    kind = "logistic-regression"
    domains = ("binary", "multiclass")
    takes_sparse = True
    trains = LogisticTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        families = OneOf(("auto", "binomial", "multinomial"))
        return Params(
            self.kind,
            (
                common.REG_PARAM,
                common.ELASTIC_NET,
                common.MAX_ITER,
                common.tolerance(1e-6),
                common.FIT_INTERCEPT,
                common.STANDARDIZATION,
                Param("family", families, "auto"),
                common.SHAPED,
                *THRESHOLDS,
                THRESHOLD,
                common.SEED,
                *common.IDLE,
            ),
        )

    def check_read(self, read: Mapping[str, Any], facts: TableFacts) -> None:
        """A binomial model tells two classes apart."""
        if read["family"] == "binomial" and len(facts.classes) > 2:
            raise UsageError(
                f"{self.kind}: the family binomial is for two classes, and there are "
                f"{len(facts.classes)}",
                remedy="take the family multinomial, or auto",
            )

    def space(self, facts: TableFacts) -> Space:
        """The penalty, and whether long-tailed columns are bent."""
        return {
            "reg_param": Float(1e-6, 1.0, log=True),
            "elastic_net_param": Choice((0.0,)),
            "shaped": Choice((False, True)),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Weak penalties."""
        own = {"elastic_net_param": 0.0}
        return (
            {"reg_param": 0.002, "shaped": False, **own},
            {"reg_param": 0.005, "shaped": True, **own},
            {"reg_param": 0.0001, "shaped": False, **own},
        )
