"""Tables and candidates on a Spark cluster; the only place of a search that imports pyspark."""

from __future__ import annotations

from reparto.search._spark._brought import is_brought
from reparto.search._spark._scores import baseline_of
from reparto.search._spark._source import SparkSource, open_spark
from reparto.search._spark._techniques import (
    SPARK_TECHNIQUES,
    spark_technique_named,
    spark_techniques_for,
)

__all__ = [
    "SPARK_TECHNIQUES",
    "SparkSource",
    "baseline_of",
    "is_brought",
    "open_spark",
    "spark_technique_named",
    "spark_techniques_for",
]
