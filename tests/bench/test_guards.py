"""What is wrong with a row is seen: dead networks, smaller data, noise, heat."""

import dataclasses
import math

import pytest
import torch

from reparto.bench import _guards, _train
from reparto.bench._cells import Cell
from reparto.bench._data import DataSet, constant_loss, digest
from reparto.bench._device import Device
from reparto.bench._guards import guarded, learned, unlike
from reparto.bench._subject import Subject
from tests.bench.rows import row


@pytest.fixture(autouse=True)
def one_thread():
    """Threads of tiny products wait for one another where others compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def flags_of(*rows):
    return [one.flags for one in guarded(rows)]


def small_subject(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 50, generator=generator)
    y = x[:, :1] + 0.5
    data = DataSet(
        x=x.numpy(),
        y=y.numpy(),
        digest=digest(x.numpy()),
        loss_constant=constant_loss(y.numpy()),
    )
    monkeypatch.setattr("reparto.bench._subject._data_of", lambda *_: data)
    monkeypatch.setattr(_train, "TIMED_S", 0.0)
    return Subject(Cell(source="grid", suite="grid", model="50"))


def trained(subject, **changes):
    cell = Cell(source="grid", suite="grid", model="50", batch_rows=32)
    measured = _train.train(subject, cell, Device("cpu"), 0.0)
    return guarded([dataclasses.replace(measured, low_s=measured.step_s, high_s=measured.step_s)])


def test_a_network_of_the_grid_that_learns_is_not_flagged(monkeypatch):
    (found,) = trained(small_subject(monkeypatch))
    assert "did-not-learn" not in found.flags
    assert found.loss_last < 0.5 * found.loss_constant


def test_a_dead_network_is_flagged_although_its_last_layer_finds_the_constant(monkeypatch):
    subject = small_subject(monkeypatch)
    with torch.no_grad():
        subject._pristine[0].bias.fill_(-100.0)  # no unit is ever on again
    (found,) = trained(subject)
    assert "did-not-learn" in found.flags


def test_a_rate_of_zero_is_flagged(monkeypatch):
    subject = small_subject(monkeypatch)
    subject.rate = 0.0
    (found,) = trained(subject)
    assert "did-not-learn" in found.flags


def test_a_network_that_blew_up_is_flagged():
    assert flags_of(row(loss_last=math.nan)) == [("did-not-learn",)]


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ((1.0, 0.1, 0.8), True),
        ((1.0, 0.8, 0.8), False),
        ((1.0, 0.795, 0.8), False),  # hardly better than the constant
        ((0.5, 0.2, None), True),  # a script: no constant is known
        ((0.5, 0.5, None), False),
        ((None, 0.5, None), None),
        ((1.0, None, 0.8), None),
    ],
)
def test_learning_is_judged_by_the_constant_or_else_by_the_first_loss(losses, verdict):
    assert learned(*losses) is verdict


def test_a_smaller_data_set_beside_the_plain_row_is_flagged():
    plain = row()
    shared = row(strategy="all-reduce", num_workers=2, work={"num_samples": 500})
    assert flags_of(plain, shared) == [(), ("not-like-for-like",)]
    assert flags_of(shared, plain) == [("not-like-for-like",), ()]


@pytest.mark.parametrize(
    ("name", "value"),
    [("num_parameters", 1300), ("target_steps", 50), ("data", "other")],
)
def test_another_model_or_number_of_steps_or_other_data_are_flagged(name, value):
    other = row(device="cuda:0", work={name: value})
    assert flags_of(row(), other) == [(), ("not-like-for-like",)]
    (note,) = guarded([row(), other])[1].notes
    assert note.startswith("not like for like: ")


def test_what_nobody_knows_of_a_script_is_no_difference():
    script = {"suite": "train.py", "num_parameters": 0}
    plain = row(work={**script, "num_samples": 0, "batch_rows": 0})
    shared = row(strategy="all-reduce", num_workers=2, work=script)
    assert flags_of(plain, shared) == [(), ()]


def test_rows_of_other_batches_are_not_held_against_each_other():
    assert flags_of(row(rows=2), row(rows=8)) == [(), ()]


def test_a_failed_row_is_no_reference_for_others():
    gone = row(step_s=None, failure="no memory", work={"num_samples": 0})
    assert flags_of(gone, row(device="cuda:0")) == [("failed",), ()]


def test_times_that_are_spread_are_flagged():
    assert flags_of(row(low_s=0.009, high_s=0.0115)) == [("noisy",)]
    assert flags_of(row(low_s=0.0099, high_s=0.0101)) == [()]


def test_what_was_seen_while_it_was_measured_stays():
    assert flags_of(row(flags=("throttled",))) == [("throttled",)]
    assert flags_of(row(flags=("noisy",))) == [("noisy",)]


def test_guarding_twice_says_nothing_twice():
    once = guarded([row(), row(device="cuda:0", work={"data": "other"})])
    assert guarded(once) == once


def test_a_device_that_slowed_down_is_told():
    assert _guards.slowed(1.0, 1.2)
    assert not _guards.slowed(1.0, 1.1)


def test_like_work_has_no_difference():
    assert unlike(row().work, row().work) == ()
