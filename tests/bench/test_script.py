"""A script's run as a row: times, losses, devices, failures."""

import os

import pytest

from reparto.bench import _script
from reparto.bench._cells import Cell
from reparto.bench._script import Scripts, Timed, completed, job_of, row_from, visible, work_of
from reparto.spec import Failure, RunResult, StepRecord, StrategyConfig
from tests.bench.rows import row


@pytest.fixture
def cell(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("pass")
    return Cell(source="script", suite="train.py", model="", where=str(path))


def timed(count=50, step_s=0.1, **result):
    told = {"status": "done", "num_steps": count, "num_samples": 8 * count, "batch_rows": 8}
    records = tuple(
        StepRecord(step=n, time_s=n * step_s, samples=8, loss=1.0 / n) for n in range(1, count + 1)
    )
    return Timed(result=RunResult(**(told | result)), records=records)


def test_times_are_those_between_steps_after_the_warm_up():
    assert timed().step_times() == pytest.approx([0.1] * 47)


def test_steps_that_were_not_told_of_are_shared_out():
    records = tuple(StepRecord(step=n, time_s=0.01 * n, samples=8) for n in (1, 30, 60))
    found = Timed(result=RunResult(status="done"), records=records)
    assert found.step_times() == pytest.approx([0.01])


def test_a_run_becomes_a_row(cell):
    found = row_from(cell, timed(), work_of(cell, timed()))
    assert found.step_s == pytest.approx(0.1)
    assert found.samples_per_s == pytest.approx(80.0)
    assert (found.loss_first, found.work.target_steps) == (1.0, 50)
    assert found.loss_last < 0.03
    assert found.work.num_samples == 400


def test_a_script_that_fails_is_a_row_that_says_why(cell):
    failure = Failure(rank=0, host="", error="KeyError", message="'lr'\nmore")
    found = row_from(cell, timed(status="failed", failure=failure), work_of(cell, timed()))
    assert found.failure == "KeyError: 'lr'"


def test_a_script_that_makes_no_steps_is_told(cell):
    assert "too few steps" in row_from(cell, timed(0), work_of(cell, timed(0))).failure


def test_a_script_that_does_not_use_the_gpu_is_told(cell):
    from dataclasses import replace

    on_gpu = replace(cell, device="cuda:0")
    found = row_from(on_gpu, timed(memory_device="cpu"), work_of(cell, timed()))
    assert "did not use the GPU" in found.failure


def test_number_of_steps_follows_from_a_first_run_and_is_kept(cell, monkeypatch):
    asked = []

    def run(job, cell):
        asked.append((job.strategy, job.options.steps))
        return timed(job.options.steps, 0.01)

    monkeypatch.setattr(_script, "run_script", run)
    scripts = Scripts({})
    scripts.measure(cell)
    scripts.measure(cell)
    assert asked == [("single", 20), ("single", 300), ("single", 300)]
    assert Scripts(scripts.steps).steps == {"train.py": 300}


def test_given_number_of_steps_needs_no_first_run(cell, monkeypatch):
    from dataclasses import replace

    asked = []
    monkeypatch.setattr(
        _script, "run_script", lambda job, cell: asked.append(job.options.steps) or timed()
    )
    Scripts({}).measure(replace(cell, steps=7))
    assert asked == [7]


def test_losses_are_asked_for_where_that_costs_nothing(cell):
    from dataclasses import replace

    on_gpu = replace(cell, device="cuda:0")
    shared = replace(
        on_gpu, strategy="all-reduce", num_workers=2, config=StrategyConfig(kind="all-reduce")
    )
    asked = [job_of(one, "train.py", (), 10).options.losses for one in (cell, on_gpu, shared)]
    assert asked == [True, False, True]
    assert job_of(shared, "train.py", (), 10).workers == 2


def test_accelerated_form_is_one_worker_that_is_accelerated(cell):
    from dataclasses import replace

    jobs = [job_of(replace(cell, form=form), "t.py", (), 9) for form in ("plain", "accelerated")]
    assert [job.accelerate for job in jobs] == ["off", "on"]
    assert [job.options.losses for job in jobs] == [True, False]


def test_a_script_finds_the_device_of_its_cell_and_no_other(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    with visible("cuda:1"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "5"
    with visible("cpu"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4,5"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with visible("cuda:1"):
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


def test_one_worker_learns_its_batch_from_several():
    alone = row(work={"suite": "train.py", "batch_rows": 0})
    shared = row(work={"suite": "train.py", "batch_rows": 64}, strategy="all-reduce")
    found = completed([alone, shared])
    assert [one.work.batch_rows for one in found] == [64, 64]
    assert found[0].samples_per_s == pytest.approx(64 / 0.01)


def test_rows_of_the_grid_keep_their_batch():
    rows = [row(rows=2), row(rows=8)]
    assert completed(rows) == rows
