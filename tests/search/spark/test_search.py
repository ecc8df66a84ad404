"""Whole searches on a real master with two workers, with the same report as everywhere."""

import json

import numpy as np
import pytest

from reparto.search import load, search
from reparto.search.metrics import scores_of
from reparto.spec import Candidate, SearchRequest
from tests.search.spark.conftest import GROUP

pytestmark = GROUP


def test_a_search_on_a_cluster_ends_with_a_model_that_needs_no_cluster(
    spark_cluster, closed, table, tmp_path, capfd
):
    pytest.importorskip("reparto.search._report")
    names = ("logistic-regression", "linear-svm")
    request = SearchRequest(
        data=str(table), test=str(table), target="tall", engine="spark", folds=2,
        address=spark_cluster.address, max_workers=2, metric="accuracy",
        candidates=tuple(
            Candidate(number=number, technique=name, settings={"regParam": 0.01, "maxIter": 5})
            for number, name in enumerate(names)
        ),
    )  # fmt: skip
    result = search(request, tmp_path / "out")
    assert [one.status for one in result.evaluations] == ["done", "done"]
    assert {one.candidate.technique for one in result.leaderboard} == set(names)
    assert all(one.score > 0.75 for one in result.leaderboard)
    assert all(len(one.rungs) == 2 for one in result.evaluations)
    assert result.bill.busy_s > 0
    # The model answers without Spark, and as well as was told.
    model = load(tmp_path / "out")
    rows = model.read(table, with_target=True)
    own = scores_of(model.facts, model.predict(rows), rows.y)
    assert result.model.test_scores["accuracy"] == pytest.approx(own["accuracy"])
    assert own["accuracy"] > 0.8
    files = [path.name for path in (tmp_path / "out" / "model").rglob("*") if path.is_file()]
    assert sorted(files) == ["mllib.json", "mllib.safetensors", "model.json"]
    again = json.loads((tmp_path / "out" / "again.json").read_text())
    assert (again["engine"], again["address"]) == ("spark", spark_cluster.address)
    assert (tmp_path / "out" / "report.html").exists()
    assert closed, "the session ends with the search"
    # Nothing of a JVM's chatter is on the screen.
    told = capfd.readouterr()
    assert "WARN" not in told.err and "log4j" not in told.out + told.err


def test_clusters_are_found_in_parquet_and_judged_as_everywhere(spark_cluster, closed, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    centers = np.array([[0, 0], [10, 0], [0, 10]])
    points = np.concatenate([center + rng.normal(size=(60, 2)) for center in centers])
    columns = {"a": points[:, 0], "b": points[:, 1]}
    path = tmp_path / "points.parquet"
    parquet.write_table(pyarrow.table(columns), path)
    request = SearchRequest(
        data=str(path), domain="clustering", engine="spark", folds=1,
        address=spark_cluster.address,
        candidates=(
            Candidate(number=0, technique="k-means", settings={"k": 3}),
            Candidate(number=1, technique="gaussian-mixture", settings={"k": 2}),
        ),
    )  # fmt: skip
    result = search(request, tmp_path / "out")
    best = result.leaderboard[0]
    assert best.candidate.settings == {"k": 3} and best.score > 0.8
    model = load(tmp_path / "out")
    labels = model.predict(points).values
    assert [len(set(labels[start : start + 60])) for start in (0, 60, 120)] == [1, 1, 1]
    assert len(set(labels)) == 3
