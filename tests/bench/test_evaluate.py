"""An evaluation goes on where it was, and tells how long it will take."""

import dataclasses

import pytest

from reparto.bench import Request, Watcher, _evaluate, evaluate
from reparto.bench._evaluate import _Clock
from reparto.bench._failures import failed
from tests.bench.rows import row

REQUEST = Request(targets=("grid",), models=("50", "100"), batches=(8, 32), modes=("train",))


class Crew:
    """Measures nothing; one cell may fail."""

    def __init__(self, folder):
        self.peaks = {"cpu f32": 1e11}

    def measure(self, cell):
        Crew.asked.append(cell.key)
        if cell.key == Crew.fails:
            return failed(cell, "no memory")
        return row(cell.model, rows=cell.batch_rows)

    def close(self):
        pass


class Told(Watcher):
    def __init__(self):
        self.remarks, self.num_kept, self.left = [], 0, []

    def kept(self, count):
        self.num_kept = count

    def ended(self, row, left_s):
        self.left.append(left_s)

    def remark(self, text):
        self.remarks.append(text)


@pytest.fixture(autouse=True)
def crew(monkeypatch):
    Crew.asked, Crew.fails = [], None
    monkeypatch.setattr(_evaluate, "Crew", Crew)
    return Crew


def test_every_cell_is_measured_once(tmp_path):
    report = evaluate(REQUEST, tmp_path)
    assert len(report.measurements) == report.planned == 4
    evaluate(REQUEST, tmp_path)
    assert len(Crew.asked) == 4


def test_limit_measures_some_now_and_the_next_call_goes_on(tmp_path):
    some = dataclasses.replace(REQUEST, limit=3)
    assert len(evaluate(some, tmp_path).measurements) == 3
    told = Told()
    assert len(evaluate(some, tmp_path, told).measurements) == 4
    assert told.num_kept == 3


def test_a_cell_that_failed_is_a_row_and_is_tried_again(tmp_path):
    Crew.fails = "grid|50|train|plain|cpu|f32|b8|single|w1"
    report = evaluate(REQUEST, tmp_path)
    assert [one.failure for one in report.measurements] == ["no memory", "", "", ""]
    Crew.fails = None
    assert not any(one.failure for one in evaluate(REQUEST, tmp_path).measurements)
    assert len(Crew.asked) == 5


def test_rows_are_kept_when_an_evaluation_is_broken_off(tmp_path, monkeypatch):
    def interrupted(self, cell):
        if len(Crew.asked) == 2:
            raise KeyboardInterrupt
        Crew.asked.append(cell.key)
        return row(cell.model, rows=cell.batch_rows)

    monkeypatch.setattr(Crew, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(REQUEST, tmp_path)
    monkeypatch.setattr(Crew, "measure", lambda self, cell: row(cell.model, rows=cell.batch_rows))
    told = Told()
    evaluate(REQUEST, tmp_path, told)
    assert told.num_kept == 2


def test_a_changed_environment_is_told(tmp_path, monkeypatch):
    evaluate(REQUEST, tmp_path)
    monkeypatch.setattr(_evaluate, "environment_of", lambda devices: {"host": "another"})
    told = Told()
    evaluate(REQUEST, tmp_path, told)
    assert "4 rows were made in another environment" in told.remarks[0]


def test_environment_is_kept_beside_the_rows(tmp_path):
    evaluate(REQUEST, tmp_path)
    report = evaluate(REQUEST, tmp_path)
    assert report.environment["peaks"] == {"cpu f32": 1e11}
    assert report.environment["threads"] >= 1


def test_time_left_is_guessed_from_like_cells():
    from reparto.bench._cells import planned_cells

    train, infer = planned_cells(
        Request(targets=("cnn",), batches=(8,), calls=(1,), forms=("eager",))
    )
    clock = _Clock()
    assert clock.left([train]) is None
    clock.took(train, 4.0)
    clock.took(infer, 2.0)
    assert clock.left([train, train, infer]) == 10.0


def test_time_left_is_told_after_each_cell(tmp_path):
    told = Told()
    evaluate(REQUEST, tmp_path, told)
    assert len(told.left) == 4
    assert told.left[-1] == 0.0
