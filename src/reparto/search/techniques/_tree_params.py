"""What techniques of trees have in common: their settings, and how they are told to scikit-learn.

ours               Spark MLlib               scikit-learn
num_trees          numTrees                  n_estimators
max_depth          maxDepth (0: one leaf)    max_depth
min_samples_leaf   minInstancesPerNode       min_samples_leaf
min_leaf_share     minWeightFractionPerNode  min_weight_fraction_leaf
min_info_gain      minInfoGain               min_impurity_decrease (weighed by the node's rows)
max_features       featureSubsetStrategy     max_features
subsampling_rate   subsamplingRate           max_samples, subsample
criterion          impurity                  criterion
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reparto.search.techniques._params import Any_, Custom, Number, OneOf, Param, Whole
from reparto.spec import Domain

EXACT = "every value is looked at as a split, not bins of them"
_ON_SPARK = "it is about how Spark keeps and sends trees"

MAX_DEPTH = Param("max_depth", Whole(0), None)
MIN_SAMPLES_LEAF = Param(
    "min_samples_leaf",
    Whole(1),
    1,
    ("minInstancesPerNode", "min_child_samples", "min_data_in_leaf"),
)
SEED = Param("seed", Whole(-(2**63)), None, ("random_state",))
#: Accepted, since leaving them out changes no model.
IDLE = (
    Param("max_memory_in_mb", Any_(), unused=_ON_SPARK),
    Param("cache_node_ids", Any_(), unused=_ON_SPARK),
    Param("checkpoint_interval", Any_(), unused=_ON_SPARK),
    Param("aggregation_depth", Any_(), unused="nothing is sent between machines"),
)
MAX_BINS = Param("max_bins", Whole(2), unused=EXACT)
THRESHOLDS = (Param("thresholds", Custom(lambda it: _thresholds(it), "one above 0 a class")),)
THRESHOLD = Param("threshold", Number(0.0, 1.0))


def _thresholds(value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise ValueError
    found = tuple(float(one) for one in value)
    if any(one < 0 for one in found) or sum(one == 0 for one in found) > 1:
        raise ValueError
    return found


def features_of(value: Any) -> float | int | str:
    """How many columns a split may choose from: a word of MLlib's, a share or a number.

    Raises:
        ValueError: If it is none.
    """
    if isinstance(value, str):
        word = value.strip().lower()
        if word in ("auto", "sqrt", "log2", "onethird", "all"):
            return word
        value = float(word) if "." in word or "e" in word else int(word)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError
    if isinstance(value, int) and value >= 1:
        return value
    if isinstance(value, float) and 0.0 < value <= 1.0:
        return value
    if isinstance(value, float) and value == int(value) > 1:
        return int(value)
    raise ValueError


FEATURES = Custom(
    features_of,
    "auto, all, sqrt, log2, onethird, a share of the columns such as 0.5, or a number of them",
)


def growth(domain: Domain, *, max_depth: int | None = None) -> tuple[Param, ...]:
    """Settings of each tree."""
    impurities = (
        OneOf(("variance",), (("squared_error", "variance"), ("friedman_mse", "variance")))
        if domain == "regression"
        else OneOf(("gini", "entropy"), (("log_loss", "entropy"),))
    )
    default = "variance" if domain == "regression" else "gini"
    return (
        Param("max_depth", Whole(0), max_depth),
        MIN_SAMPLES_LEAF,
        Param("min_leaf_share", Number(0.0, 0.5), 0.0, ("minWeightFractionPerNode",)),
        Param("min_info_gain", Number(0.0), 0.0, ("min_impurity_decrease",)),
        Param("criterion", impurities, default, ("impurity",)),
        Param("max_leaf_nodes", Whole(2), None),
    )


def told(settings: Mapping[str, Any], scale: float = 1.0) -> dict[str, Any]:
    """What scikit-learn's trees are told, of a target that was divided by its `scale`."""
    depth, gain = settings["max_depth"], settings["min_info_gain"] / scale / scale
    if depth == 0:  # one leaf, as MLlib has it: no split gains so much
        depth, gain = 1, 1e300
    criterion = settings.get("criterion")
    found = {"criterion": "squared_error" if criterion == "variance" else criterion}
    return {
        "max_depth": depth,
        "min_samples_leaf": settings["min_samples_leaf"],
        "min_weight_fraction_leaf": settings["min_leaf_share"],
        "min_impurity_decrease": gain,
        "max_leaf_nodes": settings["max_leaf_nodes"],
        **(found if criterion else {}),
    }


def told_features(value: Any, num_columns: int, *, auto: float | str) -> Any:
    """What scikit-learn is told of how many columns a split may choose from."""
    if value in (None, "auto"):
        value = auto
    if value == "all":
        return 1.0
    if value == "onethird":
        value = 1.0 / 3.0
    if isinstance(value, int):
        return min(value, num_columns)
    return value
