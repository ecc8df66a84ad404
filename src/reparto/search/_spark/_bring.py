"""Bring a model of MLlib home: its numbers, from which numpy answers without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reparto.search._spark._brought import ARRAYS, FORMAT, NAME, Arrays
from reparto.search._spark._prepare import Prepared, num_slots
from reparto.search._spark._slots import columns_of
from reparto.spec import TableFacts

#: Its form, its few numbers, its many.
Known = tuple[str, dict[str, Any], Arrays]


def bring(model: Any, prepared: Prepared, facts: TableFacts, folder: Path) -> None:
    """Write what a model of MLlib knows into a folder: numbers, in JSON and safetensors.

    Args:
        model: Trained.
        prepared: How rows were made into its vectors.
        facts: Of the table.
        folder: Where files go; it exists.
    """
    from safetensors.numpy import save_file

    form, about, arrays = _known(model, facts)
    weights = getattr(model, "featureImportances", None)
    if weights is not None:
        slots = np.zeros(num_slots(facts, prepared.way))
        own = weights.toArray()
        slots[: len(own)] = own
        arrays["importances"] = columns_of(slots, facts, prepared.way)
    plain = {
        "format": FORMAT, "form": form, "made_by": type(model).__name__, "about": about,
        "prepared": prepared.state(),
    }  # fmt: skip
    (folder / NAME).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    ready = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    save_file(ready, folder / ARRAYS)


def _known(model: Any, facts: TableFacts) -> Known:
    """What it is for numpy, its few numbers, and its many."""
    kind = type(model).__name__
    if hasattr(model, "trees") or kind.startswith("DecisionTree"):
        return _trees(model, facts)
    return _FORMS[kind](model)


def _linear(model: Any) -> Known:
    arrays = {"weights": model.coefficients.toArray(), "intercepts": np.array([model.intercept])}
    return "linear", {}, arrays


def _generalized(model: Any) -> Known:
    family = model.getFamily().lower()
    about: dict[str, Any] = {"family": family}
    if family == "tweedie":
        power = float(model.getVariancePower())
        linked = model.isSet("linkPower") or model.hasDefault("linkPower")
        about["variance_power"] = power
        about["link_power"] = float(model.getLinkPower()) if linked else 1.0 - power
    else:
        about["link"] = model.getLink().lower() if model.isSet("link") else _LINKS[family]
    return "generalized", about, _linear(model)[2]


_LINKS = {"gaussian": "identity", "binomial": "logit", "poisson": "log", "gamma": "inverse"}


def _logistic(model: Any) -> Known:
    weights, intercepts = model.coefficientMatrix.toArray(), model.interceptVector.toArray()
    return "logistic", {}, {"weights": weights, "intercepts": intercepts}


def _margin(model: Any) -> Known:
    return "margin", {}, _linear(model)[2]


def _bayes(model: Any) -> Known:
    arrays = {"pi": model.pi.toArray(), "theta": model.theta.toArray()}
    if model.getModelType() == "gaussian":
        arrays["sigma"] = model.sigma.toArray()
    return "bayes", {"model": model.getModelType()}, arrays


def _layers(model: Any) -> Known:
    about = {"layers": [int(size) for size in model.getLayers()]}
    return "layers", about, {"weights": model.weights.toArray()}


def _centers(model: Any) -> Known:
    centers = np.array(model.clusterCenters())
    return "centers", {"distance": model.getDistanceMeasure()}, {"centers": centers}


def _mixture(model: Any) -> Known:
    rows = model.gaussiansDF.collect()
    arrays = {
        "weights": np.array(model.weights),
        "means": np.array([row[0].toArray() for row in rows]),
        "covariances": np.array([row[1].toArray() for row in rows]),
    }
    return "mixture", {}, arrays


_FORMS: Mapping[str, Callable[[Any], Known]] = {
    "LinearRegressionModel": _linear,
    "GeneralizedLinearRegressionModel": _generalized,
    "LogisticRegressionModel": _logistic,
    "LinearSVCModel": _margin,
    "NaiveBayesModel": _bayes,
    "MultilayerPerceptronClassificationModel": _layers,
    "KMeansModel": _centers,
    "GaussianMixtureModel": _mixture,
}


def _trees(model: Any, facts: TableFacts) -> Known:
    single = not hasattr(model, "trees")
    trees = [model] if single else list(model.trees)
    is_boosted = type(model).__name__.startswith("GBT")
    weights = list(model.treeWeights) if is_boosted else [1.0 / len(trees)] * len(trees)
    answers = "values"
    if facts.is_classification:
        answers = "margin" if is_boosted else "votes"
    wide = answers == "votes"
    arrays = _nodes([_nodes_of(tree) for tree in trees], len(facts.classes) if wide else 0)
    arrays["tree_weights"] = np.array(weights, dtype=np.float64)
    return "trees", {"answers": answers}, arrays


def _nodes_of(tree: Any) -> list[dict[str, Any]]:
    """All nodes of a tree in one call; one call for each value would take minutes for a forest."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None and context._jvm is not None
    jvm: Any = context._jvm
    jackson = jvm.com.fasterxml.jackson
    mapper = jackson.databind.ObjectMapper()
    mapper.registerModule(jackson.module.scala.DefaultScalaModule())
    # Getters of these classes raise for leaves; their fields say all.
    seen = getattr(jackson.annotation, "JsonAutoDetect$Visibility")
    mapper.setVisibility(jackson.annotation.PropertyAccessor.ALL, seen.NONE)
    mapper.setVisibility(jackson.annotation.PropertyAccessor.FIELD, seen.ANY)
    data = getattr(jvm.org.apache.spark.ml.tree, "DecisionTreeModelReadWrite$NodeData$")
    nodes = getattr(data, "MODULE$").build(tree._java_obj.rootNode(), 0)._1()
    found: list[dict[str, Any]] = json.loads(mapper.writeValueAsString(nodes))
    return sorted(found, key=lambda node: int(node["id"]))


def _nodes(trees: Sequence[Sequence[dict[str, Any]]], classes: int) -> Arrays:
    """All trees, one after the other; a split of levels has a row of `left_levels`."""
    count = sum(map(len, trees))
    feature = np.zeros(count, np.int32)
    threshold = np.zeros(count)
    left, right = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    split_row = np.full(count, -1, np.int32)
    values = np.zeros((count, classes or 1))
    roots: list[int] = []
    levels: list[list[int]] = []
    at = 0
    for tree in trees:
        roots.append(at)
        for place, node in enumerate(tree, at):
            if classes:
                counts = np.array(node["impurityStats"], dtype=np.float64)[:classes]
                values[place, : len(counts)] = counts / max(counts.sum(), 1e-300)
            else:
                values[place, 0] = float(node["prediction"])
            if node["leftChild"] < 0:
                continue
            split = node["split"]
            feature[place] = split["featureIndex"]
            left[place], right[place] = at + node["leftChild"], at + node["rightChild"]
            if split["numCategories"] < 0:
                threshold[place] = float(split["leftCategoriesOrThreshold"][0])
            else:
                split_row[place] = len(levels)
                levels.append([int(it) for it in split["leftCategoriesOrThreshold"]])
        at += len(tree)
    width = 1 + max((max(row, default=0) for row in levels), default=0)
    mask = np.zeros((len(levels), width), np.uint8)
    for place, row in enumerate(levels):
        mask[place, row] = 1
    return {
        "roots": np.array(roots, np.int32), "feature": feature, "threshold": threshold,
        "left": left, "right": right, "split_row": split_row, "left_levels": mask,
        "values": values,
    }  # fmt: skip
