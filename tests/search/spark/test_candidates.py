"""A table on a real master with two workers: its facts, folds and candidates, their scores."""

import dataclasses

import numpy as np
import pytest

from reparto.errors import UsageError
from reparto.search._crew import (
    FitTask,
    Ready,
    RungReached,
    Task,
    TaskDone,
    TaskFailed,
    WorkerDied,
)
from reparto.search._spark import SparkSource, spark_techniques_for
from reparto.search._spark import _scores as scores_module
from reparto.search._spark._bring import bring
from reparto.search._spark._brought import load_brought
from reparto.search._spark._scores import answer_of, baseline_of, scores_on_cluster
from reparto.search._spark._typed import rows_of
from reparto.search._spark._work import Trained
from reparto.search.metrics import constant_answer, scores_of
from reparto.spec import Candidate, Rung, SearchRequest, to_plain
from tests.search.spark.conftest import GROUP

pytestmark = GROUP


@pytest.fixture(scope="module")
def source(session, table):
    """The table with two classes to tell apart."""
    return SparkSource(session, SearchRequest(data=str(table), target="tall", folds=3))


def test_facts_are_found_by_the_cluster(source):
    facts = source.facts
    assert (facts.domain, facts.classes, facts.num_rows) == ("binary", ("no", "yes"), 240)
    names = [column.name for column in facts.columns]
    assert names == ["petal.length", "petal width", "depth", "color", "size"]
    color = facts.columns[3]
    assert (color.kind, color.levels) == ("category", ("blue", "red", "white"))
    assert 10 < facts.columns[1].num_missing < 40
    assert any("parted by ';'" in note for note in facts.notes)


def test_facts_are_those_that_one_machine_finds(source, table):
    tables = pytest.importorskip("reparto.search._tables")
    if not hasattr(tables, "read_table"):
        pytest.skip("tables are not read yet")
    local = tables.read_table(SearchRequest(data=str(table), target="tall")).facts
    ours = source.facts
    assert [(it.name, it.kind, it.levels) for it in local.columns] == [
        (it.name, it.kind, it.levels) for it in ours.columns
    ]
    assert (local.domain, local.classes, local.class_counts) == (
        ours.domain, ours.classes, ours.class_counts,
    )  # fmt: skip


def test_folds_are_disjoint_and_stratified(source):
    seen = []
    for fold in range(3):
        rows = rows_of(source.split.tested(source.frame, fold), source.facts)
        share = source.facts.class_counts[1] / 240
        assert abs(float(np.mean(rows.y)) - share) < 0.02
        seen.append(len(rows))
        trained = source.split.trained(source.frame, fold)
        assert trained.count() == 240 - len(rows)
        assert trained.join(source.split.tested(source.frame, fold), "row").count() == 0
    assert seen == source.counts and max(seen) - min(seen) <= 2


def test_groups_stay_together_and_what_comes_later_is_not_trained_on(session, tmp_path):
    path = tmp_path / "visits.csv"
    rows = [f"{i % 7},{(i * 37) % 100},{i % 3},g{i % 12}" for i in range(96)]
    path.write_text("\n".join(["a,day,y,who", *rows]) + "\n")
    given = {"data": str(path), "target": "y", "folds": 3}
    grouped = SparkSource(session, SearchRequest(groups="who", **given))
    assert [one.name for one in grouped.facts.columns] == ["a", "day"]
    folds = grouped.frame.select("grp", "fold").distinct().collect()
    assert len(folds) == len({row["grp"] for row in folds}) == 12
    assert grouped.split.how == "3 folds by groups (who)" and min(grouped.counts) == 32
    timed = SparkSource(session, SearchRequest(time="day", **given))
    assert "day" not in [one.name for one in timed.facts.columns]
    for fold in range(timed.num_folds):
        before = timed.split.trained(timed.frame, fold).agg({"time": "max"}).collect()[0][0]
        after = timed.split.tested(timed.frame, fold).agg({"time": "min"}).collect()[0][0]
        assert before < after
    assert 45 <= sum(timed.counts) <= 51
    assert [len(truth) for truth in timed.truths()] == timed.counts


def _candidates(source):
    yield "logistic-regression", {"regParam": 0.01, "maxIter": 5}
    yield "logistic-regression", {"family": "multinomial", "maxIter": 5}
    yield "random-forest", {"numTrees": 3, "maxDepth": 3}
    yield "random-forest", {"numTrees": 2, "maxBins": 3}  # too few bins for levels
    yield "gradient-boosted-trees", {"maxIter": 2, "maxDepth": 2}
    yield "linear-svm", {"maxIter": 4}
    yield "naive-bayes", {}
    yield "naive-bayes", {"modelType": "gaussian"}
    yield "multilayer-perceptron", {"layers": (8, 3, 2), "maxIter": 4}


def test_what_is_brought_home_answers_as_the_cluster_does_and_scores_are_those_of_one_machine(
    source, tmp_path, monkeypatch
):
    frame = source.split.tested(source.frame, 0)
    rows = rows_of(frame, source.facts)
    for number, (kind, settings) in enumerate(_candidates(source)):
        trained = Trained(
            source, Candidate(number=0, technique=kind, settings=settings), 1, 0, 1.0
        )
        predicted = trained.predict(frame).persist()
        are = trained.are_probabilities
        answer = answer_of(predicted, source.facts, are_probabilities=are)
        own = tmp_path / str(number)
        own.mkdir()
        bring(trained.model, trained.prepared, source.facts, own)
        home = load_brought(own, to_plain(source.facts)).predict(rows.x)
        np.testing.assert_allclose(home.values, answer.values, rtol=0, atol=1e-9, err_msg=kind)
        assert home.are_probabilities == are
        if number in (0, 5):
            found = scores_on_cluster(predicted, source.facts, are_probabilities=are)
            assert found == pytest.approx(scores_of(source.facts, answer, rows.y), abs=1e-12)
        if number == 0:  # scores are put together where there are many; here each has a bin
            monkeypatch.setattr(scores_module, "MOST_SCORES", 10)
            few = scores_on_cluster(predicted, source.facts, are_probabilities=are)
            assert few == pytest.approx(found, abs=1e-12)
        predicted.unpersist()


def test_the_baseline_is_that_of_one_machine(source):
    parts = []
    for fold in range(3):
        tested = rows_of(source.split.tested(source.frame, fold), source.facts).y
        parts.append((rows_of(source.split.trained(source.frame, fold), source.facts).y, tested))
    for metric in ("log-loss", "accuracy", "f1", "recall", "specificity", "auroc", "aupr"):
        found = []
        for trained, tested in parts:
            answer = constant_answer(source.facts, trained, len(tested), metric)
            found.append(scores_of(source.facts, answer, tested)[metric])
        mean = float(np.mean(found))
        assert baseline_of(source, metric) == pytest.approx(mean), metric


def test_settings_are_mllibs_own_and_checked_by_it(source):
    (forest,) = spark_techniques_for(source.facts, ["RandomForestClassifier"])
    assert forest.setting_named("max-depth", source.facts) == "maxDepth"
    forest.check({"numTrees": 5, "impurity": "entropy"}, source.facts)
    for settings, words in (
        ({"maxDepth": -3}, "maxDepth cannot be -3"),
        ({"impurity": "anger"}, "impurity cannot be 'anger'"),
        ({"numTrees": "many"}, "numTrees cannot be 'many'"),
        ({"depth": 3}, "no setting 'depth'"),
        ({"labelCol": "tall"}, "columns are told by the table"),
        ({"thresholds": [0.1, 0.9]}, "the likeliest class"),
    ):
        with pytest.raises(UsageError, match=words):
            forest.check(settings, source.facts)
    (layers,) = spark_techniques_for(source.facts, ["mlp"])
    with pytest.raises(UsageError, match=r"layers is \[4, 5, 2\]") as caught:
        layers.check({"layers": (4, 5, 2)}, source.facts)
    assert "[8, 5, 2]" in caught.value.remedy
    with pytest.raises(UsageError, match="no technique 'lightgbm' on Spark"):
        spark_techniques_for(source.facts, ["lightgbm"])
    with pytest.raises(UsageError, match="is for regression, and this is a binary problem"):
        spark_techniques_for(source.facts, ["linear-regression"])


def test_workers_work_at_once_and_one_that_is_killed_leaves_the_others_alone(source, tmp_path):
    crew = source.crew(2, "matthews")
    try:
        slow, quick = crew.acquire(), crew.acquire()
        ready = [event for event in _until(crew, Ready, 2) if isinstance(event, Ready)]
        assert {one.host for one in ready} == {source.session.address}
        endless = Candidate(
            number=0,
            technique="gradient-boosted-trees",
            settings={"maxIter": 5000, "maxDepth": 3},
        )
        crew.give(slow, Task(endless, (Rung(fold=0),)))
        good = Candidate(number=1, technique="naive-bayes", settings={"modelType": "gaussian"})
        crew.give(quick, Task(good, (Rung(fold=0, share=0.5), Rung(fold=0))))
        first = _until(crew, RungReached)[-1]
        assert (first.number, first.reached.answer) == (1, None)
        crew.kill(slow, "was too slow")
        assert _until(crew, WorkerDied)[-1].is_ours
        crew.reply(quick, True)
        whole = _until(crew, RungReached)[-1].reached
        assert whole.score.num_rows == source.counts[0] == len(whole.answer.values)
        assert whole.score.score > 0.5
        crew.reply(quick, False)
        _until(crew, TaskDone)
        crew.give(quick, FitTask(good, str(tmp_path)))
        assert _until(crew, TaskDone)[-1].fitted.size_bytes > 100
        # What fails is a failure in a line, and the worker goes on.
        bad = Candidate(number=2, technique="linear-svm", settings={"regParam": 0.1})
        crew.give(quick, Task(bad, (Rung(fold=9),)))
        assert isinstance(_until(crew, TaskFailed)[-1], TaskFailed)
    finally:
        crew.close()
    jobs = source.session._context.statusTracker()
    assert not [job for job in jobs.getActiveJobsIds()]


def _until(crew, kind, count=1):
    found = []
    while sum(isinstance(one, kind) for one in found) < count:
        events = crew.wait(100)
        assert events, f"nothing came, least of all {kind.__name__}"
        found += events
    return found


def test_truths_are_of_the_same_rows_as_answers(source):
    truths = source.truths()
    for fold, truth in enumerate(truths):
        rows = rows_of(source.split.tested(source.frame, fold), source.facts)
        np.testing.assert_array_equal(truth, rows.y)
    assert dataclasses.asdict(source.facts)["class_counts"] == tuple(
        np.bincount(np.concatenate(truths))
    )
