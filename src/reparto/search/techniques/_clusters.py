"""k-means and the Gaussian mixture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reparto.search._rows import Matrix, Vector
from reparto.search._space import Choice, Int, Space
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._linear_params import IDLE, tolerance
from reparto.search.techniques._params import Any_, Flag, Number, OneOf, Param, Params, Whole
from reparto.search.techniques._prepare import Kind, is_sparse
from reparto.search.techniques._tree_params import SEED
from reparto.spec import Domain, Settings, TableFacts

#: So many clusters are looked for, at most.
MOST_CLUSTERS = 12
_STANDARDIZATION = Param("standardization", Flag(), True, ("scale", "scaled"))
_K = Param("k", Whole(2), 2, ("n_clusters", "n_components", "num_clusters"))


class _ClusterTrainer(EstimatorTrainer):
    def _preparation(self) -> Kind:
        return "scaled" if self.settings["standardization"] else "encoded"


class _KMeansTrainer(_ClusterTrainer):
    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn.cluster import KMeans as Estimator

        settings = self.settings
        return Estimator(
            n_clusters=settings["k"],
            init=settings["init_mode"],
            n_init=settings["num_starts"],
            max_iter=settings["max_iter"],
            tol=settings["tol"],
            random_state=self.seed,
        )

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        self.estimator.fit(self._directed(x))

    def answer(self, x: Matrix) -> Vector:
        return super().answer(self._directed(x))

    def _directed(self, x: Matrix) -> Matrix:
        """By cosine: rows of length 1, as MLlib has it."""
        if self.settings["distance_measure"] == "cosine":
            from sklearn.preprocessing import normalize

            return normalize(x)
        # scikit-learn does not write to sparse rows, and yet wants to be able to.
        return x.copy() if is_sparse(x) else np.ascontiguousarray(x)


class _MixtureTrainer(_ClusterTrainer):
    def make(self, num_rows: int, num_columns: int) -> Any:
        from sklearn.mixture import GaussianMixture as Estimator

        settings = self.settings
        return Estimator(
            n_components=settings["k"],
            covariance_type=settings["covariance_type"],
            max_iter=settings["max_iter"],
            tol=settings["tol"],
            n_init=settings["num_starts"],
            reg_covar=settings["reg_covar"],
            random_state=self.seed,
        )


class KMeans(EstimatorTechnique):
    """Each row belongs to the nearest of k middles."""

    kind = "k-means"
    domains = ("clustering",)
    resource = "rows"
    takes_sparse = True
    trains = _KMeansTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        inits = OneOf(("k-means++", "random"), (("k-means||", "k-means++"),))
        distances = OneOf(("euclidean", "cosine"))
        blocks = "which way it is worked out changes no middle"
        return Params(
            self.kind,
            (
                _K,
                Param("max_iter", Whole(1), 20, ("iterations",)),
                tolerance(1e-4),
                Param("init_mode", inits, "k-means++", ("init",)),
                Param("num_starts", Whole(1), 4, ("n_init", "runs")),
                Param("distance_measure", distances, "euclidean", ("metric",)),
                _STANDARDIZATION,
                SEED,
                Param(
                    "init_steps",
                    Whole(1),
                    unused="k-means++ draws one middle after the other, not in steps",
                ),
                Param("solver", Any_(), unused=blocks),
                *IDLE,
            ),
        )

    def space(self, facts: TableFacts) -> Space:
        """How many clusters."""
        return {"k": Int(2, _most(facts)), "distance_measure": Choice(("euclidean", "cosine"))}

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Few clusters first."""
        return _by_k(facts, {"distance_measure": "euclidean"})


class GaussianMixture(EstimatorTechnique):
    """Rows are drawn from one of k normal distributions."""

    kind = "gaussian-mixture"
    domains = ("clustering",)
    trains = _MixtureTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        kinds = OneOf(("full", "tied", "diag", "spherical"))
        return Params(
            self.kind,
            (
                _K,
                Param("max_iter", Whole(1), 100, ("iterations",)),
                tolerance(0.01),
                Param("covariance_type", kinds, "full"),
                Param("num_starts", Whole(1), 1, ("n_init",)),
                Param("reg_covar", Number(0.0), 1e-6),
                _STANDARDIZATION,
                SEED,
                *IDLE,
            ),
        )

    def space(self, facts: TableFacts) -> Space:
        """How many clusters, and their shape."""
        return {
            "k": Int(2, _most(facts)),
            "covariance_type": Choice(("full", "tied", "diag", "spherical")),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Few clusters first."""
        return _by_k(facts, {"covariance_type": "full"})


def _most(facts: TableFacts) -> int:
    return max(2, min(MOST_CLUSTERS, facts.num_rows // 2))


def _by_k(facts: TableFacts, own: Settings) -> Sequence[Settings]:
    return tuple({"k": k, **own} for k in (3, 2, 4, 5, 6, 8) if k <= _most(facts)) or (
        {"k": 2, **own},
    )
