"""What is planned for a request."""

from itertools import pairwise

import pytest

from reparto.bench._cells import Entry, Request, key_of, planned_cells
from reparto.errors import UsageError
from reparto.spec import StrategyConfig
from tests.bench.rows import row

ALL_REDUCE = Entry(label="all-reduce", strategy=StrategyConfig(kind="all-reduce"))
SINGLE = Entry(label="single", strategy=StrategyConfig(kind="single"))


def test_whole_grid_has_every_model_batch_and_call():
    cells = planned_cells(Request())
    assert len(cells) == 31 * (6 + 3 * 5)
    assert len({cell.key for cell in cells}) == len(cells)


def test_cells_of_a_model_on_a_device_follow_one_another():
    cells = planned_cells(Request(devices=("cpu", "cuda:0"), targets=("grid",)))
    places = [(cell.device, cell.model) for cell in cells]
    changes = sum(a != b for a, b in pairwise(places))
    assert changes == 2 * 30 - 1


def test_only_some_models_and_only_training():
    request = Request(models=("50", "cnn"), modes=("train",), batches=(8,))
    assert [cell.model for cell in planned_cells(request)] == ["50", "cnn"]


def test_on_a_gpu_a_training_step_is_timed_plainly_and_captured():
    request = Request(targets=("cnn",), devices=("cpu", "cuda:0"), modes=("train",), batches=(8,))
    cells = planned_cells(request)
    assert [(one.device, one.form) for one in cells] == [
        ("cpu", "plain"),
        ("cuda:0", "plain"),
        ("cuda:0", "captured"),
    ]
    assert cells[2].title == "cnn · training, captured · cuda:0 · f32 · 8 rows"


def test_a_form_that_no_gpu_can_take_is_timed_on_the_cpu_only():
    request = Request(
        targets=("cnn",),
        devices=("cpu", "cuda:0"),
        modes=("infer",),
        calls=(1,),
        forms=("eager", "onnx"),
        cpu_only=("onnx",),
    )
    told = [(one.device, one.form) for one in planned_cells(request)]
    assert told == [("cpu", "eager"), ("cpu", "onnx"), ("cuda:0", "eager")]


def test_a_captured_step_needs_a_gpu():
    with pytest.raises(UsageError, match="nothing to measure"):
        planned_cells(Request(targets=("cnn",), modes=("train",), loops=("captured",)))


def test_strategies_are_added_once_for_each_number_of_workers():
    request = Request(
        targets=("grid",),
        models=("50",),
        batches=(8,),
        modes=("train",),
        entries=(SINGLE, ALL_REDUCE),
        workers=(2, 4),
    )
    told = [(cell.strategy, cell.num_workers) for cell in planned_cells(request)]
    assert told == [("single", 1), ("all-reduce", 2), ("all-reduce", 4)]


def test_a_script_has_its_own_batch():
    request = Request(targets=("train.py",), args=("--lr", "0.1"), entries=(ALL_REDUCE,))
    cells = planned_cells(request)
    assert [cell.batch_rows for cell in cells] == [0, 0]
    assert all(cell.by_script for cell in cells)
    assert cells[0].model == "--lr 0.1"


def test_deadline_adds_the_search_for_the_largest_call():
    plain = Request(targets=("cnn",), modes=("infer",), forms=("eager",))
    more = Request(targets=("cnn",), modes=("infer",), forms=("eager",), deadline_s=1.0)
    assert len(planned_cells(more)) == len(planned_cells(plain)) + 1


def test_cpu_has_no_tf32_and_is_not_asked_for_it():
    request = Request(targets=("cnn",), devices=("cpu", "cuda:0"), dtypes=("f32", "tf32"))
    assert {cell.device for cell in planned_cells(request) if cell.dtype == "tf32"} == {"cuda:0"}


def test_a_row_has_the_key_of_its_cell():
    request = Request(targets=("grid",), models=("50",), batches=(32,), modes=("train",))
    assert [cell.key for cell in planned_cells(request)] == [key_of(row())]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request(targets=("nonsense",)), "nothing that can be timed"),
        (Request(targets=("net.py:Net",)), "what a sample looks like"),
        (Request(models=("51",)), "the grid has no 51"),
        (Request(targets=("cnn",), models=("50",)), "nothing to measure"),
    ],
)
def test_a_request_that_makes_no_sense_is_told(request_, said):
    with pytest.raises(UsageError, match=said):
        planned_cells(request_)
