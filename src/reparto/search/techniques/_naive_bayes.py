"""Naive Bayes, of the kinds that Spark MLlib has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reparto.search._rows import Matrix, Vector
from reparto.search._space import Choice, Float, Space
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._params import Any_, Number, OneOf, Param, Params
from reparto.search.techniques._prepare import Kind, is_sparse
from reparto.search.techniques._tree_params import THRESHOLD, THRESHOLDS
from reparto.spec import Domain, Settings, TableFacts


class _BayesTrainer(EstimatorTrainer):
    def _preparation(self) -> Kind:
        return "scaled" if self.settings["model_type"] == "gaussian" else "encoded"

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn import naive_bayes

        kind, smoothing = self.settings["model_type"], max(self.settings["smoothing"], 1e-10)
        if kind == "gaussian":
            return naive_bayes.GaussianNB(var_smoothing=self.settings["var_smoothing"])
        kinds = {
            "multinomial": naive_bayes.MultinomialNB,
            "complement": naive_bayes.ComplementNB,
            "bernoulli": naive_bayes.BernoulliNB,
        }
        return kinds[kind](alpha=smoothing)

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        kind = self.settings["model_type"]
        values = x.data if is_sparse(x) else x
        if kind in ("multinomial", "complement") and values.size and float(values.min()) < 0:
            raise ValueError(
                f"naive Bayes of the type {kind} counts, and there are values below 0: "
                "take model_type gaussian"
            )
        if kind == "bernoulli" and not np.isin(values, (0.0, 1.0)).all():
            raise ValueError(
                "naive Bayes of the type bernoulli is for values that are 0 or 1: "
                "take model_type gaussian"
            )
        if kind == "gaussian" and is_sparse(x):
            x = x.toarray()
        self.estimator.fit(x, y)

    def answer(self, x: Matrix) -> Vector:
        kind = self.settings["model_type"]
        if kind == "gaussian" and is_sparse(x):
            x = x.toarray()
        elif kind in ("multinomial", "complement") and not is_sparse(x):
            x = np.maximum(x, 0.0)
        return super().answer(x)


class NaiveBayes(EstimatorTechnique):
    """Columns say what a row is, each by itself. System D's; defaults are Spark MLlib's."""

    kind = "naive-bayes"
    domains = ("binary", "multiclass")
    takes_sparse = True
    is_modern = False
    trains = _BayesTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        types = OneOf(("multinomial", "complement", "bernoulli", "gaussian"))
        return Params(
            self.kind,
            (
                Param("smoothing", Number(0.0), 1.0, ("alpha", "lambda")),
                Param("model_type", types, "multinomial"),
                Param("var_smoothing", Number(0.0), 1e-9),
                *THRESHOLDS,
                THRESHOLD,
                Param("seed", Any_(), unused="nothing of it is random"),
            ),
        )

    def space(self, facts: TableFacts) -> Space:
        """How sure it may be of what it has never seen; counts are what sparse tables hold."""
        if facts.is_sparse:
            kinds = ("multinomial", "complement")
            return {"model_type": Choice(kinds), "smoothing": Float(1e-3, 10.0, log=True)}
        return {
            "model_type": Choice(("gaussian",)),
            "var_smoothing": Float(1e-9, 0.1, log=True),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """For counts, or for measurements."""
        if facts.is_sparse:
            return (
                {"model_type": "multinomial", "smoothing": 1.0},
                {"model_type": "complement", "smoothing": 0.3},
            )
        return tuple(
            {"model_type": "gaussian", "var_smoothing": smoothing} for smoothing in (1e-9, 0.01)
        )
