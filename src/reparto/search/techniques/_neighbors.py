"""k neighbours: a row is what the rows near it are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reparto.search._rows import Matrix, Vector
from reparto.search._space import Choice, Int, Space
from reparto.search.techniques import _linear_params as common
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._params import OneOf, Param, Params, Whole
from reparto.search.techniques._portfolio import MANY
from reparto.search.techniques._prepare import Kind, is_sparse
from reparto.search.techniques._tree_params import THRESHOLD, THRESHOLDS
from reparto.spec import Domain, Settings, TableFacts


class _NeighborsTrainer(EstimatorTrainer):
    def _preparation(self) -> Kind:
        return common.SCALINGS[self.settings["scaling"]]

    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn import neighbors

        settings = self.settings
        chosen = neighbors.KNeighborsRegressor
        if self.facts.is_classification:
            chosen = neighbors.KNeighborsClassifier
        return chosen(
            n_neighbors=min(settings["num_neighbors"], num_rows),
            weights=settings["weights"],
            metric=settings["metric"],
            n_jobs=self.threads,
        )

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        if is_sparse(x) and self.settings["metric"] == "manhattan":
            x = x.toarray() if x.shape[0] * x.shape[1] < 1e7 else x
        self.estimator.fit(x, y)

    def answer(self, x: Matrix) -> Vector:
        found = super().answer(x)
        if not self.facts.is_classification:
            return found
        # k rows cannot tell a rare class from one that never is.
        count, classes = self.estimator.n_neighbors, found.shape[1]
        smooth: Vector = (found * count + 1.0 / classes) / (count + 1.0)
        return smooth

    def restore(self, state: Mapping[str, Any]) -> None:
        """With the threads of here."""
        super().restore(state)
        if self.estimator is not None:
            self.estimator.n_jobs = self.threads


class KNeighbors(EstimatorTechnique):
    """The rows that are nearest decide."""

    kind = "k-neighbors"
    domains = ("regression", "binary", "multiclass")
    takes_sparse = True
    slow_beyond_rows = 20_000
    trains = _NeighborsTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        metrics = OneOf(
            ("euclidean", "manhattan", "cosine"), (("l2", "euclidean"), ("l1", "manhattan"))
        )
        return Params(
            self.kind,
            (
                Param("num_neighbors", Whole(1), 5, ("n_neighbors", "k")),
                Param("weights", OneOf(("uniform", "distance")), "uniform"),
                Param("metric", metrics, "euclidean"),
                common.SCALING,
                *((*THRESHOLDS, THRESHOLD) if domain != "regression" else ()),
            ),
        )

    def space(self, facts: TableFacts) -> Space:
        """How many, and how far rows are from each other."""
        return {
            "num_neighbors": Int(1, max(2, min(60, facts.num_rows // 4)), log=True),
            "weights": Choice(("uniform", "distance")),
            "metric": Choice(("euclidean", "manhattan")),
            "scaling": Choice(tuple(common.SCALINGS)),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """A few near ones, then more of them."""
        names = ("num_neighbors", "weights", "metric", "scaling")
        known = [(7, "distance", "euclidean", "normal"), (15, "distance", "manhattan", "each")]
        if facts.num_columns >= MANY:
            known.insert(0, (5, "distance", "euclidean", "common"))
        return tuple(dict(zip(names, one, strict=True)) for one in known)
