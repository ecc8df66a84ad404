"""The report of a real search: what it shows are the numbers of that search."""

import csv
import itertools
import json

import numpy as np
import pytest

from reparto.search import _report, load, search
from reparto.search.metrics import scores_of
from reparto.spec import SearchRequest

pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra `search`)")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A small search with a test table; what was handed to the report."""
    folder = tmp_path_factory.mktemp("search")
    random = np.random.default_rng(0)
    for name, rows in (("rows", 120), ("test", 60)):
        kinds = random.integers(0, 3, rows)
        x = random.standard_normal((rows, 3))
        x[:, 1] += 1.7 * kinds
        with (folder / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("first", "telling", "last", "kind"))
            writer.writerows(
                (*map(float, row), "abc"[kind]) for row, kind in zip(x, kinds, strict=True)
            )
    request = SearchRequest(
        data=str(folder / "rows.csv"),
        test=str(folder / "test.csv"),
        target="kind",
        techniques=("logistic-regression", "decision-tree"),
        trials=4,
        folds=3,
        max_workers=1,
        price_per_hour=0.4,
        ensemble=False,
    )
    told, write = [], _report.write_report
    with pytest.MonkeyPatch.context() as patch:

        def both(*args):
            told.append(args)
            write(*args)

        patch.setattr(_report, "write_report", both)
        search(request, folder / "found")
    return told[0]


def test_truth_and_answers_are_of_the_same_rows(found):
    result, evidence, _ = found
    best = next(one for one in result.evaluations if one.candidate.number == result.best)
    labels = evidence.answer.labels
    assert len(labels) == len(evidence.truth) == 120
    sizes = [one.num_rows for one in best.rungs if one.rung.share >= 1.0]
    starts = np.cumsum([0, *sizes])
    right = [
        float(np.mean(labels[a:b] == evidence.truth[a:b])) for a, b in itertools.pairwise(starts)
    ]
    assert float(np.mean(right)) == pytest.approx(best.scores["accuracy"])
    assert best.scores["accuracy"] > 0.6


def test_the_test_table_is_told_as_the_saved_model_answers_it(found):
    result, evidence, folder = found
    model = load(folder)
    rows = model.read(result.request.test, with_target=True)
    answer = model.predict(rows)
    np.testing.assert_allclose(answer.values, evidence.test_answer.values, atol=1e-6)
    scores = scores_of(result.facts, answer, rows.y)
    assert result.model.test_score == pytest.approx(scores[result.metric])
    text = (folder / "report.md").read_text()
    assert f"On 60 rows that nobody had seen: F1 {scores['f1']:.4f}" in text


def test_the_column_that_tells_matters_most(found):
    _, evidence, _ = found
    assert evidence.importances[0][0] == "telling"
    assert sum(value for _, value in evidence.importances) == pytest.approx(1.0)
    assert "shuffled, on rows of the test table" in evidence.importances_how


def test_the_bill_adds_up(found):
    result, _, _ = found
    bill = result.bill
    assert bill.paid_s == pytest.approx(
        sum(one.released_s - one.acquired_s for one in bill.workers)
    )
    assert bill.cost == pytest.approx(bill.paid_s * 0.4 / 3600)
    assert sum(one.busy_s for one in result.evaluations) <= bill.busy_s <= bill.paid_s
    assert sum(one.num_candidates for one in bill.workers) >= len(result.evaluations)


def test_its_folder_holds_the_report_and_the_request_that_repeats_it(found):
    result, _, folder = found
    names = {one.name for one in folder.iterdir()}
    assert {"report.html", "report.md", "leaderboard.csv", "search.json", "again.json"} <= names
    again = json.loads((folder / "again.json").read_text())
    assert [one["number"] for one in again["candidates"]] == [result.best]
    assert result.command in (folder / "report.md").read_text()
