"""Shared by the tests on Spark: one master with two workers, and small tables."""

import csv
import os
import sys

import numpy as np
import pytest

from tests.search.spark.cluster import Cluster, reason_to_skip

#: Of an idle machine; where others work too, a test may take many times as long.
GROUP = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="session")
def spark_cluster():
    """A standalone master and two workers, each a process of its own."""
    why = reason_to_skip()
    if why:
        pytest.skip(why)
    # Executors run no Python; if one did, it should be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cluster = Cluster()
    yield cluster
    cluster.close()


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    """A CSV with numbers, a category, missing values, names with dots; three kinds of targets."""
    path = tmp_path_factory.mktemp("spark") / "flowers.csv"
    rng = np.random.default_rng(3)
    count = 240
    x = rng.normal(size=(count, 3))
    color = rng.choice(["blue", "red", "white"], count)
    missing = rng.random(count) < 0.1
    tall = np.where(x[:, 0] + (color == "red") + 0.3 * rng.normal(size=count) > 0.3, "yes", "no")
    size = 2 * x[:, 0] - x[:, 2] + (color == "blue") + 0.1 * rng.normal(size=count) + 20
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["petal.length", "petal width", "depth", "color", "size", "tall"])
        for i in range(count):
            width = "NA" if missing[i] else f"{x[i, 1]:.6f}"
            cells = [f"{x[i, 0]:.6f}", width, f"{x[i, 2]:.6f}", color[i], f"{size[i]:.6f}"]
            writer.writerow([*cells, tall[i]])
    return path
