import dataclasses
import math
import random
import statistics
import subprocess
import sys

import numpy as np
import pytest

from reparto.errors import UsageError
from reparto.search import search
from reparto.search._answers import Answers
from reparto.search._finish import Finish, Question, finish_s, last_s
from reparto.search._model import Model
from reparto.search._rows import Answer, Rows
from reparto.search._store import Store
from reparto.search._tables import _size
from reparto.search._work import Fitted
from reparto.spec import Candidate, Evaluation, Rung, RungScore, SearchRequest, TableFacts
from tests.search.scripted import Lines
from tests.search.test_store import HOLD

BRANIN = SearchRequest(domain="function", trials=2, max_workers=1, search="random")


def known(fit_s):
    rung = RungScore(rung=Rung(fold=0), score=0.5, fit_s=fit_s)
    candidate = Candidate(number=0, technique="a")
    return Evaluation(candidate=candidate, status="stopped", rungs=(rung,))


def test_search_that_is_still_running_keeps_its_folder(tmp_path):
    folder = tmp_path / "found"
    search(BRANIN, folder)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, folder], stdin=-1, stdout=-1, text=True
    ) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match="another search uses this folder"):
            search(BRANIN, folder)
        other.stdin.close()
    assert [one.name for one in tmp_path.iterdir()] == ["found"]
    result = search(BRANIN, folder)
    assert any("an earlier search is kept in found." in note for note in result.notes)


def test_folder_in_which_we_are_is_not_put_aside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "search-id.json").write_text('{"id": "0", "storage": ""}')
    with pytest.raises(UsageError, match="is where you are"):
        search(BRANIN, ".")


def test_a_budget_without_a_price_is_refused_before_anything_is_touched(tmp_path):
    folder = tmp_path / "found"
    search(BRANIN, folder)
    asked = SearchRequest(domain="function", cost=1.0)
    with pytest.raises(UsageError, match="what a worker costs"):
        search(asked, folder)
    with pytest.raises(UsageError, match="what a worker costs"):
        search(asked, folder, resume=True)
    assert [one.name for one in tmp_path.iterdir()] == ["found"]
    priced = SearchRequest(cost=1e-9, price_per_hour=0.4)
    result = search(priced, folder, resume=True)
    assert (result.ended, result.bill.price_per_hour) == ("cost", 0.4)


def test_a_search_without_a_limit_waits_for_its_model():
    assert last_s(100.0, math.inf, 80.0) >= 100.0 + 2 * 80.0
    assert last_s(1.0, math.inf, 0.1) >= 30.0


def test_model_is_trained_with_what_is_left_of_the_money():
    assert last_s(100.0, math.inf, 80.0, paid_s=7.0) == 107.0
    assert last_s(100.0, 110.0, 80.0, paid_s=50.0) == 108.0


def test_while_nothing_is_known_no_worker_has_to_start_for_the_end():
    question = Question(TableFacts(), "accuracy", True)
    assert finish_s([], question, 8.0, 10, start_s=3.0) == pytest.approx(1.6)
    assert finish_s([known(1.0)], question, 8.0, 10, start_s=3.0) > 1.6 + 3.0 + 1.0


def test_time_is_left_to_answer_for_a_long_test_table():
    one = dataclasses.replace(known(1.0), predict_row_s=1e-3)
    test = Rows(np.zeros((20_000, 1)))
    question = Question(TableFacts(), "accuracy", True)
    asked = dataclasses.replace(question, test=test)
    assert finish_s([one], question, 60.0, 5) < 10.0
    assert finish_s([one], asked, 60.0, 5) > 20.0


def test_search_can_be_gone_on_with_from_another_folder(tmp_path, monkeypatch):
    little_table(tmp_path / "t.csv")
    monkeypatch.chdir(tmp_path)
    only = {"techniques": ("elastic-net",), "max_workers": 1, "folds": 2, "ensemble": False}
    (tmp_path / "found").mkdir()
    (tmp_path / "found" / "answers").write_text("in the way")
    watcher = Lines()
    search(SearchRequest(data="t.csv", trials=1, **only), "found", watcher)
    assert any("cannot be kept for ensembles" in note for note in watcher.notes)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    result = search(SearchRequest(trials=2), tmp_path / "found", resume=True)
    assert [one.status for one in result.evaluations] == ["done"] * 2


def test_candidates_are_told_in_the_order_of_their_numbers(tmp_path):
    first = search(BRANIN, tmp_path / "found")
    named = tuple(reversed([one.candidate for one in first.evaluations]))
    asked = SearchRequest(domain="function", candidates=named, max_workers=1)
    result = search(asked, tmp_path / "named")
    assert [one.candidate.number for one in result.evaluations] == [0, 1]


def test_storage_that_does_not_write_is_told_and_tried_again(tmp_path, monkeypatch):
    whole, watcher = Store._write, Lines()
    tries = []

    def write(store):
        tries.append(store)
        if len(tries) == 1:
            raise UsageError("--storage search.db: disk full", remedy="make room")
        whole(store)

    monkeypatch.setattr(Store, "_write", write)
    search(BRANIN, tmp_path / "found", watcher)
    told = [note for note in watcher.notes if "disk full" in note]
    assert told == [
        "candidates cannot be kept now, which is tried again: --storage search.db: disk full"
    ]
    resumed = search(SearchRequest(trials=2), tmp_path / "found", resume=True)
    assert len(resumed.evaluations) == 2


def test_search_whose_time_is_used_up_is_left_as_it_is(tmp_path):
    first = search(BRANIN, tmp_path / "found")
    told = (tmp_path / "found" / "search.json").read_bytes()
    with pytest.raises(UsageError, match="are used") as refused:
        asked = SearchRequest(time_s=first.took_s / 2)
        search(asked, tmp_path / "found", resume=True)
    assert "--time gives it more" in refused.value.remedy
    assert (tmp_path / "found" / "search.json").read_bytes() == told


def little_table(path):
    draws = random.Random(0)
    rows = [(x, x + 0.1 * draws.random()) for x in (draws.random() for _ in range(60))]
    path.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in rows))
    return str(path)


def test_search_of_other_data_is_not_gone_on_with(tmp_path, monkeypatch):
    only = {"techniques": ("elastic-net",), "max_workers": 1, "folds": 2, "ensemble": False}
    mine, other = (little_table(tmp_path / f"{name}.csv") for name in ("mine", "other"))
    folder = tmp_path / "found"
    search(SearchRequest(data=mine, trials=1, **only), folder)
    told = (folder / "search.json").read_bytes()
    with pytest.raises(UsageError, match=r"holds a search of .*mine\.csv, and .*other\.csv is"):
        search(SearchRequest(data=other, trials=2), folder, resume=True)
    with pytest.raises(UsageError, match=r"and train\.py is named"):
        search(SearchRequest(script="train.py", trials=2), folder, resume=True)
    assert (folder / "search.json").read_bytes() == told
    monkeypatch.chdir(tmp_path)
    result = search(SearchRequest(data="mine.csv", trials=2), folder, resume=True)
    assert len(result.evaluations) == 2


def test_rows_stay_the_same_when_a_search_goes_on_with_more_time(tmp_path, monkeypatch):
    monkeypatch.setattr(_size, "VALUES_A_SECOND", 1)
    monkeypatch.setattr(_size, "FEWEST_VALUES", 10)
    monkeypatch.setattr(_size, "FEWEST_ROWS", 10)
    only = {"techniques": ("elastic-net",), "max_workers": 1, "folds": 2, "ensemble": False}
    asked = SearchRequest(data=little_table(tmp_path / "t.csv"), time_s=60.0, trials=1, **only)
    first = search(asked, tmp_path / "found")
    assert first.facts.num_rows == 30 and first.request.rows == 30
    again = SearchRequest(trials=2, time_s=600.0)
    assert search(again, tmp_path / "found", resume=True).facts.digest == first.facts.digest
    monkeypatch.setattr(_size, "VALUES_A_SECOND", 1000)
    whole = search(asked, tmp_path / "whole")
    monkeypatch.setattr(_size, "VALUES_A_SECOND", 1)
    again = search(again, tmp_path / "whole", resume=True)
    assert again.facts.num_rows == whole.facts.num_rows == 60


def test_storage_that_cannot_be_used_leaves_the_earlier_search_where_it_is(tmp_path):
    folder = tmp_path / "found"
    search(BRANIN, folder)
    told = (folder / "search.json").read_bytes()
    (tmp_path / "text.db").write_text("no database at all, but text" * 40)
    for storage in (f"sqlite:///{tmp_path}/text.db", "mysql://host/db"):
        with pytest.raises(UsageError, match="--storage"):
            search(dataclasses.replace(BRANIN, storage=storage), folder)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["found", "text.db"]
    assert (folder / "search.json").read_bytes() == told


def test_what_was_found_is_told_though_the_storage_never_comes_back(tmp_path, monkeypatch):
    def write(store):
        raise UsageError("--storage search.db: disk full", remedy="make room")

    monkeypatch.setattr(Store, "_write", write)
    watcher = Lines()
    result = search(BRANIN, tmp_path / "found", watcher)
    assert result.best is not None
    assert watcher.notes[-1] == (
        "--resume will not know how it ended: --storage search.db: disk full"
    )


class TrainsSome:
    """Trains those candidates that it can."""

    def __init__(self, *numbers):
        self.numbers, self.failures = numbers, {}

    def run(self, candidates, folder, end_s):
        for one in candidates:
            (folder / str(one.number)).mkdir(parents=True, exist_ok=True)
        found = [one.number for one in candidates if one.number in self.numbers]
        return {number: Fitted(str(folder / str(number))) for number in found}


def three_tested(folder):
    """What is to be finished: three candidates that err apart; and their evaluations."""
    draws = np.random.default_rng(0)
    truths = [draws.normal(size=60) for _ in range(3)]
    answers, evaluations = Answers(folder / "answers"), []
    for number in range(3):
        own = [Answer(truth + 0.5 * draws.normal(size=60)) for truth in truths]
        answers.keep(number, own)
        scores = [float(np.std(it.values - truth)) for it, truth in zip(own, truths, strict=True)]
        rungs = tuple(RungScore(rung=Rung(fold=i), score=one) for i, one in enumerate(scores))
        candidate, score = Candidate(number=number, technique="lightgbm"), statistics.fmean(scores)
        evaluations.append(
            Evaluation(candidate=candidate, status="done", rungs=rungs, score=score)
        )
    question = Question(TableFacts(domain="regression"), "rmse", False, truths)
    return Finish(question, answers, folder, lambda: 1.0, Lines()), evaluations


@pytest.mark.parametrize("trained", [(0,), (0, 1)])
def test_model_is_told_as_it_is_where_members_of_an_ensemble_could_not_be_trained(
    tmp_path, trained
):
    finish, evaluations = three_tested(tmp_path)
    whole = finish.run(evaluations, TrainsSome(0, 1, 2), 1, 9.0, only_one=False)
    finished = finish.run(evaluations, TrainsSome(*trained), 1, 9.0, only_one=False)
    assert finished.model.score > whole.model.score
    assert (finished.best == 0) == (trained == (0,))
    assert sorted(one.candidate.number for one in Model(tmp_path).about.members) == [*trained]
    kept = sorted(one.name for one in (tmp_path / "model").iterdir())
    assert kept == [*map(str, trained), "model.json"]


def test_why_another_than_the_best_is_the_model_is_told(tmp_path):
    finish, evaluations = three_tested(tmp_path)
    best, second, _ = sorted(evaluations, key=lambda one: one.score)
    fit = TrainsSome(second.candidate.number)
    fit.failures[best.candidate.number] = "there was no room"
    finished = finish.run(evaluations, fit, 1, 9.0, only_one=True)
    assert finished.notes == [
        f"candidate {best.candidate.number} is not in the model: there was no room",
        f"candidate {second.candidate.number} is the best that could be trained",
    ]
