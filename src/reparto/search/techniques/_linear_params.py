"""What linear models have in common: their settings, by Spark MLlib's names.

reg_param and elastic_net_param are those of MLlib's objective,

    mean loss + reg_param · (elastic_net_param · |w|₁ + (1 - elastic_net_param) / 2 · |w|₂²),

over columns of deviation 1 (``standardization``). scikit-learn's C is 1 / (rows · reg_param).
"""

from __future__ import annotations

from collections.abc import Mapping

from reparto.search.techniques._params import Any_, Flag, Number, OneOf, Param, Whole
from reparto.search.techniques._prepare import Kind
from reparto.search.techniques._tree_params import SEED

REG_PARAM = Param("reg_param", Number(0.0), 0.0, ("alpha", "lambda"))
ELASTIC_NET = Param("elastic_net_param", Number(0.0, 1.0), 0.0, ("l1_ratio",))
MAX_ITER = Param("max_iter", Whole(1), 100, ("iterations",))
FIT_INTERCEPT = Param("fit_intercept", Flag(), True)
STANDARDIZATION = Param("standardization", Flag(), True, ("standardize",))
SHAPED = Param("shaped", Flag(), False)
#: Of what goes by distances: columns are scaled each by itself, bent to a normal shape, or all
#: by the same.
SCALINGS: Mapping[str, Kind] = {"each": "near", "normal": "shaped", "common": "common"}
SCALING = Param("scaling", OneOf(tuple(SCALINGS)), "each")
IDLE = (
    Param("aggregation_depth", Any_(), unused="nothing is sent between machines"),
    Param("max_block_size_in_mb", Any_(), unused="rows are not sent in blocks"),
)


def tolerance(default: float) -> Param:
    """When training is over."""
    return Param("tol", Number(0.0), default)


__all__ = [
    "ELASTIC_NET",
    "FIT_INTERCEPT",
    "IDLE",
    "MAX_ITER",
    "REG_PARAM",
    "SCALING",
    "SCALINGS",
    "SEED",
    "SHAPED",
    "STANDARDIZATION",
    "tolerance",
]
