"""A model of MLlib that was brought home: numpy answers, with neither Spark nor Java.

mllib.json         what it is, and how rows become vectors
mllib.safetensors  its numbers; nothing of either is executed
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search._rows import Answer, Matrix, Rows
from reparto.search._spark._slots import slots_of
from reparto.search.techniques._base import Trainer
from reparto.spec import TableFacts, from_plain

NAME, ARRAYS, FORMAT = "mllib.json", "mllib.safetensors", 1
#: So many values are looked at at once.
_VALUES = 4_000_000
_EPSILON = 2.220446049250313e-16

_Floats = NDArray[np.float64]
Arrays = dict[str, NDArray[Any]]


class Brought(Trainer):
    """Answers as the model on the cluster did.

    Args:
        facts: Of the table.
        plain: What ``mllib.json`` says.
        arrays: Its numbers.
    """

    def __init__(self, facts: TableFacts, plain: Mapping[str, Any], arrays: Arrays) -> None:
        self._facts, self._plain, self._arrays = facts, plain, arrays

    def train(self, rows: Rows, share: float) -> None:
        """Refuse: that is the cluster's.

        Raises:
            UsageError: Always.
        """
        raise UsageError(
            "a model that was brought home from Spark is not trained any more",
            remedy="search again with --engine spark",
        )

    def predict(self, x: Matrix) -> Answer:
        """Say what `x` is."""
        count = int(x.shape[0])
        step = max(1, _VALUES // max(1, int(x.shape[1])))
        parts = []
        for start in range(0, count, step):
            block = x[start : start + step]
            dense = block.toarray() if hasattr(block, "toarray") else np.asarray(block)
            vectors = slots_of(dense.astype(np.float64), self._facts, self._plain["prepared"])
            parts.append(self._values(vectors))
        form = self._plain["form"]
        if not parts:
            empty = np.zeros((0, len(self._facts.classes)) if self._facts.classes else 0)
            return Answer(empty, bool(self._facts.classes))
        are = bool(self._facts.classes) and form != "margin"
        values = np.concatenate(parts)
        return Answer(values, are)

    def save(self, folder: Path) -> None:
        """Write the same files."""
        from safetensors.numpy import save_file

        text = json.dumps(dict(self._plain), indent=1) + "\n"
        (folder / NAME).write_text(text, encoding="utf-8")
        save_file(self._arrays, folder / ARRAYS)

    def importances(self) -> Sequence[float] | None:
        """Of each column, as MLlib counts them; trees only."""
        found = self._arrays.get("importances")
        return None if found is None else [float(it) for it in found]

    def _values(self, x: _Floats) -> NDArray[Any]:
        answer: NDArray[Any] = _ANSWERS[self._plain["form"]](x, self._plain["about"], self._arrays)
        return answer


def is_brought(folder: Path) -> bool:
    """Whether a model of MLlib lies there."""
    return (folder / NAME).exists()


def load_brought(folder: Path, plain_facts: Any) -> Brought:
    """Read a model that was brought home.

    Raises:
        UsageError: If there is none.
    """
    from safetensors.numpy import load_file

    try:
        plain = json.loads((folder / NAME).read_text(encoding="utf-8"))
        arrays = load_file(folder / ARRAYS)
    except (OSError, ValueError) as error:
        raise UsageError(f"{folder}: {error}", remedy="it was changed; search again") from error
    if plain.get("format") != FORMAT:
        raise UsageError(
            f"{folder / NAME} is of format {plain.get('format')}, and this reparto reads {FORMAT}",
            remedy="use the reparto that has made it",
        )
    return Brought(from_plain(TableFacts, plain_facts), plain, arrays)


def _linear(x: _Floats, about: Mapping[str, Any], a: Arrays) -> _Floats:
    found: _Floats = x @ a["weights"] + a["intercepts"][0]
    return found


def _margin(x: _Floats, about: Mapping[str, Any], a: Arrays) -> _Floats:
    margin = _linear(x, about, a)
    return np.stack([-margin, margin], axis=1)


def _generalized(x: _Floats, about: Mapping[str, Any], a: Arrays) -> _Floats:
    eta = _linear(x, about, a)
    family = about["family"]
    link = about.get("link") or "power"
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        mean = _unlinked(eta, link, float(about.get("link_power", 1.0)))
    largest = np.finfo(np.float64).max
    if family == "binomial":
        return np.clip(mean, _EPSILON, 1.0 - _EPSILON)
    power = about.get("variance_power", 0.0)
    if family in ("poisson", "gamma") or (family == "tweedie" and power != 0.0):
        return np.clip(mean, _EPSILON, largest)
    return np.clip(mean, -largest, largest)


def _unlinked(eta: _Floats, link: str, power: float) -> _Floats:
    """The mean of which this is the link."""
    if link == "probit":
        from statistics import NormalDist

        return np.array([NormalDist().cdf(float(one)) for one in eta])
    if link == "power":
        found: _Floats = np.exp(eta) if power == 0.0 else eta ** (1.0 / power)
        return found
    functions: Mapping[str, Any] = {
        "identity": lambda: eta,
        "log": lambda: np.exp(eta),
        "inverse": lambda: 1.0 / eta,
        "sqrt": lambda: eta * eta,
        "logit": lambda: 1.0 / (1.0 + np.exp(-eta)),
        "cloglog": lambda: 1.0 - np.exp(-np.exp(eta)),
    }
    mean: _Floats = functions[link]()
    return mean


def _softmax(raw: _Floats) -> _Floats:
    powers = np.exp(raw - raw.max(axis=1, keepdims=True))
    shares: _Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


def _two(one: _Floats) -> _Floats:
    return np.stack([1.0 - one, one], axis=1)


def _sigmoid(raw: _Floats) -> _Floats:
    with np.errstate(over="ignore"):
        found: _Floats = 1.0 / (1.0 + np.exp(-raw))
    return found


def _logistic(x: _Floats, about: Mapping[str, Any], a: Arrays) -> _Floats:
    raw = x @ a["weights"].T + a["intercepts"]
    return _two(_sigmoid(raw[:, 0])) if raw.shape[1] == 1 else _softmax(raw)


def _bayes(x: _Floats, about: Mapping[str, Any], a: Arrays) -> _Floats:
    pi, theta = a["pi"], a["theta"]
    if about["model"] == "gaussian":
        sigma = a["sigma"]
        off = x[:, None, :] - theta[None]
        raw = pi - 0.5 * (off * off / sigma).sum(axis=2) - 0.5 * np.log(sigma).sum(axis=1)
    elif about["model"] == "bernoulli":
        without = np.log1p(-np.exp(theta))
        raw = x @ (theta - without).T + pi + without.sum(axis=1)
    elif about["model"] == "complement":
        raw = x @ theta.T
    else:
        raw = x @ theta.T + pi
    return _softmax(raw)


def _layers(x: _Floats, about: Mapping[str, Any], a: Arrays) -> _Floats:
    sizes, weights, at = about["layers"], a["weights"], 0
    for place, (wide, next_) in enumerate(itertools.pairwise(sizes)):
        matrix = weights[at : at + wide * next_].reshape(wide, next_)
        at += wide * next_
        x = x @ matrix + weights[at : at + next_]
        at += next_
        if place < len(sizes) - 2:
            x = _sigmoid(x)
    return _softmax(x)


def _trees(x: _Floats, about: Mapping[str, Any], a: Arrays) -> _Floats:
    total = np.zeros((len(x), a["values"].shape[1]))
    for root, weight in zip(a["roots"], a["tree_weights"], strict=True):
        total += weight * a["values"][_leaves(x, int(root), a)]
    if about["answers"] == "votes":
        shares: _Floats = total / np.maximum(total.sum(axis=1, keepdims=True), 1e-300)
        return shares
    single: _Floats = total[:, 0]
    return _two(_sigmoid(2.0 * single)) if about["answers"] == "margin" else single


def _leaves(x: _Floats, root: int, a: Arrays) -> NDArray[np.int64]:
    """The leaf of each row: all rows go down together, a level at a time."""
    at = np.full(len(x), root, np.int64)
    going = np.flatnonzero(a["left"][at] >= 0)
    mask = a["left_levels"]
    while len(going):
        nodes = at[going]
        values = x[going, a["feature"][nodes]]
        goes_left = values <= a["threshold"][nodes]
        of_levels = a["split_row"][nodes] >= 0
        if of_levels.any():
            level = values[of_levels].astype(np.int64)
            inside = level < mask.shape[1]
            rows = a["split_row"][nodes[of_levels]]
            goes_left[of_levels] = inside & (mask[rows, np.minimum(level, mask.shape[1] - 1)] > 0)
        at[going] = np.where(goes_left, a["left"][nodes], a["right"][nodes])
        going = going[a["left"][at[going]] >= 0]
    return at


def _centers(x: _Floats, about: Mapping[str, Any], a: Arrays) -> NDArray[np.int64]:
    centers = a["centers"]
    if about["distance"] == "cosine":
        own = np.linalg.norm(centers, axis=1, keepdims=True)
        nearness = x @ (centers / np.maximum(own, 1e-300)).T
        nearest: NDArray[np.int64] = np.argmax(nearness, axis=1)
        return nearest
    away = (centers * centers).sum(axis=1) - 2.0 * (x @ centers.T)
    found: NDArray[np.int64] = np.argmin(away, axis=1)
    return found


def _mixture(x: _Floats, about: Mapping[str, Any], a: Arrays) -> NDArray[np.int64]:
    shares = []
    for weight, mean, covariance in zip(a["weights"], a["means"], a["covariances"], strict=True):
        values, vectors = np.linalg.eigh(covariance)
        kept = values > _EPSILON * values.max() * len(values)
        off = (x - mean) @ (vectors[:, kept] / np.sqrt(values[kept]))
        log = -0.5 * (len(mean) * np.log(2.0 * np.pi) + np.log(values[kept]).sum())
        density = np.exp(log - 0.5 * (off * off).sum(axis=1))
        shares.append(weight * (_EPSILON + density))  # as MLlib has it, so that ties end alike
    likeliest: NDArray[np.int64] = np.argmax(np.stack(shares, axis=1), axis=1)
    return likeliest


_ANSWERS: Mapping[str, Any] = {
    "linear": _linear,
    "generalized": _generalized,
    "logistic": _logistic,
    "margin": _margin,
    "bayes": _bayes,
    "layers": _layers,
    "trees": _trees,
    "centers": _centers,
    "mixture": _mixture,
}
