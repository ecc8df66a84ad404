"""Generalized linear regression, with all families and links of Spark MLlib.

scikit-learn has some of them only, so it is fitted here, in the way MLlib does it: iteratively
reweighted least squares,

    η = X w        μ = g⁻¹(η)        z = η + (y - μ) g'(μ)        ω = 1 / (g'(μ)² V(μ))
    w ← argmin  Σ ω (z - X w)² / 2 Σω  +  reg_param / 2 · |w|²    (columns of deviation 1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search._rows import Matrix, Vector
from reparto.search._space import Choice, Float, Space
from reparto.search.techniques import _linear_params as common
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._params import Any_, Number, OneOf, Param, Params
from reparto.search.techniques._prepare import Kind, is_sparse
from reparto.spec import Domain, Settings, TableFacts

_Floats = NDArray[np.float64]
_Function = Callable[[_Floats], _Floats]
#: Nothing is nearer to the end of what a mean may be.
EDGE = 1e-10


@dataclass(frozen=True)
class Link:
    """What a mean looks like on the line: g, its inverse and its slope."""

    of_mean: _Function
    mean: _Function
    slope: _Function


def _power_link(power: float) -> Link:
    if power == 0.0:
        return Link(np.log, lambda eta: np.exp(np.minimum(eta, 50.0)), lambda mu: 1.0 / mu)
    return Link(
        lambda mu: mu**power,
        lambda eta: np.maximum(eta, EDGE) ** (1.0 / power) if power != 1.0 else eta,
        lambda mu: power * mu ** (power - 1.0) if power != 1.0 else np.ones_like(mu),
    )


def _link(name: str) -> Link:
    from scipy.special import expit, logit, ndtr, ndtri

    powers = {"identity": 1.0, "log": 0.0, "inverse": -1.0, "sqrt": 0.5}
    if name in powers:
        return _power_link(powers[name])
    if name == "logit":
        return Link(logit, expit, lambda mu: 1.0 / (mu * (1.0 - mu)))
    if name == "probit":
        root = np.sqrt(2.0 * np.pi)
        return Link(ndtri, ndtr, lambda mu: root * np.exp(0.5 * ndtri(mu) ** 2))
    return Link(
        lambda mu: np.log(-np.log1p(-mu)),
        lambda eta: -np.expm1(-np.exp(np.minimum(eta, 3.5))),
        lambda mu: -1.0 / ((1.0 - mu) * np.log1p(-mu)),
    )


#: Of each family, its links, the usual one first.
LINKS: Mapping[str, tuple[str, ...]] = {
    "gaussian": ("identity", "log", "inverse"),
    "binomial": ("logit", "probit", "cloglog"),
    "poisson": ("log", "identity", "sqrt"),
    "gamma": ("inverse", "identity", "log"),
    "tweedie": (),
}
_POWERS = {"gaussian": 0.0, "poisson": 1.0, "gamma": 2.0}


class _GeneralizedTrainer(EstimatorTrainer):
    def _preparation(self) -> Kind:
        return "scaled"

    def make(self, num_rows: int, num_columns: int) -> Any:
        return None  # made in `grow`: it is but its weights

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        assert y is not None
        self._refuse(y)
        self.estimator = {"weights": self._fitted(_columns(x, self._intercept), y)}

    def answer(self, x: Matrix) -> Vector:
        eta = _columns(x, self._intercept) @ self.estimator["weights"]
        return self._clipped(self._own_link().mean(eta))

    def weights(self) -> Vector | None:
        found: Vector = np.abs(self.estimator["weights"][self._intercept :])
        return found

    @property
    def _intercept(self) -> int:
        return int(self.settings["fit_intercept"])

    def _own_link(self) -> Link:
        settings = self.settings
        if settings["family"] == "tweedie":
            power = settings["link_power"]
            return _power_link(1.0 - settings["variance_power"] if power is None else power)
        return _link(settings["link"] or LINKS[settings["family"]][0])

    def _variance(self, mu: _Floats) -> _Floats:
        family = self.settings["family"]
        if family == "binomial":
            return mu * (1.0 - mu)
        power = _POWERS.get(family, self.settings["variance_power"])
        return mu**power if power else np.ones_like(mu)

    def _clipped(self, mu: _Floats) -> _Floats:
        """Means that the family can have."""
        family = self.settings["family"]
        if family == "binomial":
            return np.clip(mu, EDGE, 1.0 - EDGE)
        has_any = family == "gaussian" or (
            family == "tweedie" and self.settings["variance_power"] == 0.0
        )
        return np.clip(mu, -1e300, 1e300) if has_any else np.clip(mu, EDGE, 1e300)

    def _refuse(self, y: _Floats) -> None:
        family, least = self.settings["family"], float(y.min())
        power = self.settings["variance_power"] if family == "tweedie" else None
        if family == "binomial" and (least < 0 or float(y.max()) > 1):
            raise ValueError("the family binomial wants a target from 0 to 1")
        if (family == "gamma" or (power is not None and power >= 2)) and least <= 0:
            raise ValueError(f"the family {family} wants a target above 0, and there is {least:g}")
        if (family == "poisson" or (power is not None and power > 0)) and least < 0:
            raise ValueError(
                f"the family {family} wants no target below 0, and there is {least:g}"
            )

    def _begin(self, y: _Floats) -> _Floats:
        """Means to begin with, as MLlib does."""
        if self.settings["family"] == "binomial":
            return (y + 0.5) / 2.0
        if self._clipped(np.zeros(1))[0] > 0 or self.settings["link"] in ("log", "inverse"):
            return np.maximum(y, 0.1 * max(float(np.abs(y).mean()), EDGE))
        return y

    def _fitted(self, x: _Floats, y: _Floats) -> _Floats:
        link, begin = self._own_link(), self._begin(y)
        ridge = np.full(x.shape[1], self.settings["reg_param"])
        ridge[: self._intercept] = 0.0
        eta: Any = link.of_mean(begin)
        weights: Any = np.zeros(x.shape[1])
        for step in range(self.settings["max_iter"]):
            mu = self._clipped(link.mean(eta))
            slope = link.slope(mu)
            worth: _Floats = 1.0 / np.maximum(slope**2 * self._variance(mu), 1e-12)
            worth = worth / float(worth.mean())
            goal = eta + (y - mu) * slope
            gram = (x.T * worth) @ x / len(y) + np.diag(ridge + 1e-10)
            fresh: _Floats = np.linalg.solve(gram, (x.T * worth) @ goal / len(y))
            if not np.all(np.isfinite(fresh)):
                raise ValueError(
                    f"it found no end: the family {self.settings['family']} with this link does "
                    "not suit the target"
                )
            moved = float(np.abs(fresh - weights).max())
            weights = fresh
            eta = x @ fresh
            if step and moved <= self.settings["tol"] * max(1.0, float(np.abs(fresh).max())):
                break
        return np.asarray(weights, dtype=np.float64)


class GeneralizedLinear(EstimatorTechnique):
    """A line behind a link. System D's; families, links and defaults are Spark MLlib's."""

    kind = "generalized-linear"
    domains = ("regression",)
    takes_sparse = True
    is_modern = False
    trains = _GeneralizedTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        links = ("identity", "log", "inverse", "logit", "probit", "cloglog", "sqrt")
        return Params(
            self.kind,
            (
                Param("family", OneOf(tuple(LINKS)), "gaussian"),
                Param("link", OneOf(links), None),
                Param("variance_power", Number(0.0), 0.0),
                Param("link_power", Number(), None),
                common.REG_PARAM,
                Param("max_iter", common.MAX_ITER.kind, 25, common.MAX_ITER.also),
                common.tolerance(1e-6),
                common.FIT_INTERCEPT,
                Param("solver", OneOf(("irls",)), unused="it is the only one"),
                Param("seed", Any_(), unused="nothing of it is random"),
                *common.IDLE,
            ),
        )

    def check_read(self, read: Mapping[str, Any], facts: TableFacts) -> None:
        """Each family has its links."""
        family, link, power = read["family"], read["link"], read["variance_power"]
        if family == "tweedie":
            if link is not None:
                raise UsageError(
                    f"{self.kind}: the family tweedie has link_power, and link is {link}",
                    remedy="take link_power 0 for log, 1 for identity",
                )
            if 0.0 < power < 1.0:
                raise UsageError(
                    f"{self.kind}: variance_power is {power:g}", remedy="it is 0, or 1 and more"
                )
        elif link is not None and link not in LINKS[family]:
            raise UsageError(
                f"{self.kind}: the family {family} has no link {link}",
                remedy=f"it has {', '.join(LINKS[family])}",
            )

    def space(self, facts: TableFacts) -> Space:
        """The penalty."""
        return {"family": Choice(("gaussian",)), "reg_param": Float(1e-5, 10.0, log=True)}

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """The normal family."""
        return (
            {"family": "gaussian", "reg_param": 0.001},
            {"family": "gaussian", "reg_param": 0.1},
        )


def _columns(x: Matrix, intercept: int) -> _Floats:
    dense = x.toarray() if is_sparse(x) else x
    found = np.asarray(dense, dtype=np.float64)
    return np.concatenate([np.ones((len(found), 1)), found], axis=1) if intercept else found
