"""Traces: of a model, of a script, and which cells are traced."""

import json
import subprocess
import sys

import numpy as np
import pytest

from reparto.bench import _subject, _traces
from reparto.bench._cells import Request, planned_cells
from reparto.bench._data import DataSet
from reparto.bench._worker import Bench

TRAIN = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters())
for step in range({steps}):
    loss = (model(torch.randn(16, 4)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("came to its end")
"""


@pytest.fixture(autouse=True)
def small_data(monkeypatch):
    x = np.random.default_rng(0).standard_normal((64, 50)).astype(np.float32)
    data = DataSet(x=x, y=x[:, :1].copy(), digest="d", loss_constant=1.0)
    monkeypatch.setattr(_subject, "_data_of", lambda *_: data)


def cells(**more):
    return planned_cells(Request(targets=("grid",), models=("50",), batches=(8, 32), **more))


def test_one_cell_of_a_model_is_traced_the_largest_batch():
    (found,) = _traces.traced_cells(cells())
    assert (found.mode, found.batch_rows) == ("train", 32)


def test_trace_of_a_model_is_a_file_for_chrome_with_words(tmp_path):
    (cell,) = _traces.traced_cells(cells())
    row, _ = Bench().measure(cell, trace=str(tmp_path))
    assert "products of matrices" in row.notes[0]
    found = json.loads((tmp_path / "step.pt.trace.json").read_text())
    assert any(event.get("name") == "aten::addmm" for event in found["traceEvents"])


def test_logs_for_tensorboard_have_graph_and_scalars(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (cell,) = _traces.traced_cells(cells())
    Bench().measure(cell, trace=str(tmp_path))
    found = accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert set(found.Tags()["scalars"]) == {"loss", "step_s"}
    assert found.Tags()["graph"]


def test_missing_tensorboard_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    (cell,) = _traces.traced_cells(cells())
    row, _ = Bench().measure(cell, trace=str(tmp_path))
    assert "brings tensorboard" in row.notes[-1]
    assert (tmp_path / "step.pt.trace.json").exists()


def inside(tmp_path, steps):
    script = tmp_path / "train.py"
    script.write_text(TRAIN.format(steps=steps))
    command = [sys.executable, "-m", "reparto.bench._inside", str(tmp_path), str(script)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((tmp_path / _traces.WORDS).read_text())


def test_script_is_traced_as_it_is_and_left_after_some_steps(tmp_path):
    out, words = inside(tmp_path, 10_000)
    assert "came to its end" not in out
    assert "the optimizer" in words[0]
    assert (tmp_path / "step.pt.trace.json").exists()


def test_script_of_too_few_steps_is_told(tmp_path):
    out, words = inside(tmp_path, 3)
    assert "came to its end" in out
    assert words == ["the script made too few steps to be traced"]


def test_script_that_fails_is_told(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("raise KeyError('lr')")
    (cell,) = _traces.traced_cells(planned_cells(Request(targets=(str(script),))))
    told = _traces.trace_all([cell], tmp_path / "traces", None)
    assert told[cell.title] == ("it could not be traced: KeyError: 'lr'",)
