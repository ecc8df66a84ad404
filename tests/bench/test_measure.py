"""Measuring itself, on tiny data: times, calls, forms, deadlines, failures."""

import numpy as np
import pytest
import torch
from torch import nn

from reparto.bench import _infer, _subject, _train
from reparto.bench._cells import Cell
from reparto.bench._data import DataSet, digest, random_data
from reparto.bench._deadline import largest
from reparto.bench._failures import why
from reparto.bench._loop import Loop
from reparto.bench._worker import Bench, cell_of, row_of

NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)
    def forward(self, x):
        print("hello")
        return self.layer(x.flatten(1))
def needs(width): ...
def none(): return None
"""


@pytest.fixture(autouse=True)
def one_thread():
    """Threads of tiny products wait for one another where others compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    x = np.random.default_rng(0).standard_normal((128, 50)).astype(np.float32)
    y = x[:, :1].copy()
    data = DataSet(x=x, y=y, digest=digest(x, y), loss_constant=1.0)
    monkeypatch.setattr(
        _subject, "_data_of", lambda source, shape: random_data(shape) if shape else data
    )
    monkeypatch.setattr(_train, "TIMED_S", 0.01)
    monkeypatch.setattr(_infer, "TIMED_S", 0.005)


def grid(**more):
    return Cell(**{"source": "grid", "suite": "grid", "model": "50", "batch_rows": 8, **more})


def measured(cell):
    row, _ = Bench().measure(cell, peak=1e15)
    return row


def test_a_training_row_has_all_figures():
    row = measured(grid())
    assert row.failure == ""
    assert row.low_s <= row.step_s <= row.high_s
    assert row.samples_per_s == pytest.approx(8 / row.step_s)
    assert row.epoch_s == pytest.approx(16 * row.step_s)
    assert row.flops_a_step == 8 * 10_300
    assert 0 < row.share_of_peak < 1
    assert row.work.num_parameters == 2601
    assert row.num_steps >= row.work.target_steps - _train.WARM_UP
    assert row.loss_last < row.loss_first


def test_loss_after_the_same_steps_is_the_same_number():
    assert measured(grid()).loss_last == measured(grid()).loss_last


def test_an_inference_row_has_its_latency():
    row = measured(grid(mode="infer", form="eager", batch_rows=4))
    assert row.p99_s >= row.step_s > 0
    assert row.work.target_steps == 0
    assert row.flops_a_step == 4 * 5_100


def test_exported_form_takes_any_number_of_samples():
    bench = Bench()
    for rows in (1, 2, 64):
        row, _ = bench.measure(grid(mode="infer", form="exported", batch_rows=rows), 1e15)
        assert row.failure == ""


def test_forms_answer_alike():
    subject = _subject.Subject(grid())
    from reparto.bench._device import Device

    forms = _infer.Forms(subject, Device("cpu"))
    answers = []
    with torch.inference_mode():
        for form in ("eager", "exported"):
            answers.append(forms.get(form, "f32")(subject.x[:5]))
    assert torch.allclose(*answers)


def test_onnx_form_answers_like_the_model():
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from reparto.bench._device import Device

    subject = _subject.Subject(grid())
    forms = _infer.Forms(subject, Device("cpu"))
    (answer,) = forms.get("onnx", "f32")(subject.x[:5])
    with torch.inference_mode():
        right = forms.get("eager", "f32")(subject.x[:5])
    assert torch.allclose(torch.from_numpy(answer), right, atol=1e-5)


def test_bf16_is_computed_where_it_is_asked_for():
    row = measured(grid(dtype="bf16"))
    assert row.failure == ""
    assert row.loss_last != measured(grid()).loss_last


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"device": "cuda:7"}, "torch sees no such GPU"),
        ({"device": "abacus"}, "is no device"),
        ({"dtype": "tf32"}, "no TF32"),
        ({"batch_rows": 1000}, "only 128 samples"),
        ({"mode": "infer", "form": "onnx", "dtype": "bf16"}, "f32 only"),
    ],
)
def test_a_cell_that_cannot_be_measured_is_a_row_that_says_why(changed, said):
    row = measured(grid(**changed))
    assert row.flags == ("failed",)
    assert said in row.failure


def test_form_of_a_library_that_is_absent_is_a_row_that_says_so(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "onnxruntime is not installed" in measured(grid(mode="infer", form="onnx")).failure


def of_user(tmp_path, name, **more):
    path = tmp_path / "net_of_user.py"
    path.write_text(NET)
    where = f"{path}:{name}"
    told = {"source": "model", "suite": where, "model": name, "where": where}
    return Cell(**{**told, "input_shape": (2, 3), "batch_rows": 8, **more})


def test_a_users_model_is_measured_on_random_data(tmp_path, capsys):
    row = measured(of_user(tmp_path, "Net"))
    assert row.failure == ""
    assert row.loss_constant is None
    assert any("random data" in note for note in row.notes)
    assert row.work.num_parameters == 21


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Nothing", "has no attribute"),
        ("needs", "without arguments"),
        ("none", "makes a NoneType"),
    ],
)
def test_a_users_model_that_cannot_be_made_is_told(tmp_path, name, said):
    assert said in measured(of_user(tmp_path, name)).failure


def test_a_model_that_raises_is_a_row_that_says_why(tmp_path):
    assert "mat1 and mat2" in measured(of_user(tmp_path, "Net", input_shape=(7,))).failure


def test_search_for_the_largest_call_finds_one_in_time():
    row = measured(grid(mode="infer", form="eager", batch_rows=0, deadline_s=0.002))
    assert row.failure == ""
    assert row.work.batch_rows >= 1
    assert row.notes[0].startswith("the largest call within 0.002 s")


def test_no_call_in_time_is_a_row_that_says_so():
    row = measured(grid(mode="infer", form="eager", batch_rows=0, deadline_s=1e-9))
    assert "one sample takes longer" in row.failure


@pytest.mark.parametrize(
    ("most", "found"), [(0, 0), (1, 1), (2, 2), (7000, 6656), (1 << 30, 1 << 20)]
)
def test_largest_is_within_an_eighth_of_the_truth(most, found):
    assert largest(lambda rows: rows <= most) == found


def test_memory_that_is_lacking_is_named():
    assert why(RuntimeError("CUDA out of memory. Tried")).startswith("not enough memory")
    assert why(MemoryError()).startswith("not enough memory")
    assert why(ValueError("a\nb")) == "ValueError: a b"


def test_cells_and_rows_travel_as_json():
    import dataclasses
    import json

    cell = grid(args=("--lr", "1"), input_shape=(3, 2))
    assert cell_of(json.loads(json.dumps(dataclasses.asdict(cell)))) == cell
    row = measured(grid())
    assert row_of(json.loads(json.dumps(dataclasses.asdict(row)))) == row


def test_dropout_is_off_while_a_loss_is_taken():
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(50, 1), nn.Dropout(0.5))

        def forward(self, x):
            return self.layers(x)

    from reparto.bench._device import Device

    subject = _subject.Subject(grid())
    subject.make, subject._pristine = Half, Half()
    loop = Loop(subject, grid(), Device("cpu"))
    assert loop.held_loss() == loop.held_loss()
