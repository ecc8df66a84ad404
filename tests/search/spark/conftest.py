"""Shared by the tests on Spark: one master with two workers, and small tables."""

import csv

import numpy as np
import pytest

from reparto.search._spark._session import Session
from tests.search.spark.cluster import Cluster, reason_to_skip

#: All on one of the test processes: there is one cluster, and one session in a process.
GROUP = pytest.mark.xdist_group("spark")


@pytest.fixture(scope="session")
def spark_cluster():
    """A standalone master and two workers, each a process of its own."""
    why = reason_to_skip()
    if why:
        pytest.skip(why)
    with pytest.MonkeyPatch.context() as patch:
        # JVMs that live for a minute spend most of it on making their code faster.
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        cluster = Cluster()
        yield cluster
        cluster.close()


@pytest.fixture(scope="session")
def session(spark_cluster):
    """A session with that cluster: one for all tests, since to start one takes seconds."""
    from pyspark import SparkContext

    made = Session(spark_cluster.address)
    yield made
    jvm = made._gateway.proc
    made.close()
    made.close()
    assert SparkContext._active_spark_context is SparkContext._gateway is None
    assert jvm.poll() is not None, "the JVM ended with the session"


@pytest.fixture
def closed(session, monkeypatch):
    """Searches use that session, and their attempts to close it are counted."""
    found = []
    monkeypatch.setattr("reparto.search._spark._source.Session", lambda *a, **k: session)
    monkeypatch.setattr(session, "close", lambda: found.append(True))
    return found


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
