"""Training by captured steps is the training of the plain loop, and a row of its own."""

import numpy as np
import pytest
import torch
from torch import nn

from reparto.bench import _subject, _train
from reparto.bench._captured import CapturedLoop
from reparto.bench._cells import Cell
from reparto.bench._data import DataSet, digest
from reparto.bench._device import Device
from reparto.bench._guards import guarded
from reparto.bench._loop import Loop
from reparto.bench._subject import Subject
from reparto.bench._worker import Bench
from tests.bench.graph import Graphs

ROWS = 24  # 128 samples are five batches, and a rest that is left out


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    x = np.random.default_rng(0).standard_normal((128, 50)).astype(np.float32)
    y = x[:, :1].copy()
    data = DataSet(x=x, y=y, digest=digest(x, y), loss_constant=1.0)
    monkeypatch.setattr(_subject, "_data_of", lambda source, shape: data)
    monkeypatch.setattr(_train, "TIMED_S", 0.01)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cell(**more):
    return Cell(**{"source": "grid", "suite": "grid", "model": "50", "batch_rows": ROWS, **more})


def losses(made, subject, device, dtype="f32"):
    loop = made(subject, cell(dtype=dtype), device)
    told = [loop.held_loss()]
    for count in (3, 1, 7):
        loop.steps(count)
        told.append(loop.held_loss())
    return told


def test_captured_steps_train_as_plain_ones_do():
    subject = Subject(cell())
    plain = losses(Loop, subject, Device("cpu"))
    device = Graphs("cpu")
    assert losses(CapturedLoop, subject, device) == pytest.approx(plain, rel=1e-5)
    assert device.num_operations > 10
    assert plain[-1] < plain[0]


def test_captured_steps_train_in_bf16_as_plain_ones_do():
    subject = Subject(cell())
    plain = losses(Loop, subject, Device("cpu"), "bf16")
    assert losses(CapturedLoop, subject, Graphs("cpu"), "bf16") == pytest.approx(plain, rel=1e-3)


@pytest.mark.parametrize("at_once", [1, 12])
def test_bf16_computes_with_the_weights_of_each_step(at_once):
    loop = Loop(Subject(cell()), cell(dtype="bf16"), Device("cpu"))
    for _ in range(12 // at_once):
        loop.steps(at_once)
    other = Loop(Subject(cell()), cell(), Device("cpu"))
    other.steps(12)
    assert loop.held_loss() == pytest.approx(other.held_loss(), rel=0.02)


def test_a_captured_row_is_like_for_like_with_the_plain_one():
    subject = Subject(cell())
    plain = _train.train(subject, cell(), Device("cpu"), 0.0)
    captured = _train.train(subject, cell(form="captured"), Graphs("cpu"), 0.0)
    assert [one.form for one in (plain, captured)] == ["plain", "captured"]
    assert captured.work == plain.work
    assert captured.loss_last == pytest.approx(plain.loss_last, rel=1e-4)
    assert all("not-like-for-like" not in one.flags for one in guarded([plain, captured]))


def test_a_model_that_looks_at_its_numbers_is_a_row_that_says_so(monkeypatch):
    class Looks(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(50, 1)

        def forward(self, x):
            return self.layer(x) if x.sum().item() < 1e9 else x[:, :1]

    monkeypatch.setattr("reparto.bench._models.perceptron", lambda hidden: Looks())
    monkeypatch.setattr("reparto.bench._device.Device", Graphs)
    bench = Bench()
    row, _ = bench.measure(cell(form="captured"), peak=1e15)
    assert row.flags == ("failed",)
    assert "not permitted when stream is capturing" in row.failure
    plain, _ = bench.measure(cell(), peak=1e15)
    assert plain.failure == ""


def test_only_a_gpu_captures():
    row, _ = Bench().measure(cell(form="captured"), peak=1e15)
    assert "only a GPU's work can be captured" in row.failure
