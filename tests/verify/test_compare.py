"""The comparer on records that were made by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from reparto.runtime import _record
from reparto.runtime._record import Record, Recorder, sketch
from reparto.spec import Divergence
from reparto.verify._compare import Precision, compare
from reparto.verify._explain import explain
from reparto.verify._judge import Judgement, judge

NUM_STEPS = 4
Change = Callable[[int, list[Tensor | None]], Sequence[Tensor | None]]


def gradients(step: int) -> list[Tensor | None]:
    draw = torch.Generator().manual_seed(step)
    shapes = ((3, 2), (3,), (5,))
    return [torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes]


def state() -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(99)
    weight = torch.randn(3, 2, generator=draw, dtype=torch.float64)
    return {
        "net.weight": weight,
        "net.bias": torch.ones(3, dtype=torch.float64),
        "net.bn.running_mean": torch.zeros(3, dtype=torch.float64),
        "net.bn.num_batches_tracked": torch.tensor(4),
    }


def make(
    folder: Path,
    *,
    change: Change = lambda step, tensors: tensors,
    num_steps: int = NUM_STEPS,
    losses: Callable[[int], float] = lambda step: 1.0 / step,
    values: Callable[[int], float] = lambda step: float(step),
    end: dict[str, Tensor] | None = None,
    names: Sequence[str] = (),
) -> Record:
    recorder = Recorder(folder)
    for step in range(1, num_steps + 1):
        recorder.loss(losses(step))
        recorder.gradients(step, "optimizer0", change(step, gradients(step)), names=names)
        recorder.value(values(step))
    recorder.state({**state(), **(end or {})})
    recorder.close()
    return Record(folder)


def verdict(
    ours: Record,
    theirs: Record,
    tolerance: float = 1e-7,
    precision: Precision = "float64",
    noise: Record | None = None,
) -> tuple[Judgement, Divergence | None]:
    floors = [compare(ours, noise, precision)] if noise else []
    judgement = judge(compare(ours, theirs, precision), tolerance, floors)
    if not judgement.excesses:
        return judgement, None
    return judgement, explain(judgement.excesses, ours, theirs, num_workers=2)


def scaled(factor: float) -> Change:
    return lambda step, tensors: [None if t is None else t * factor for t in tensors]


def test_equal_records_are_at_distance_zero(tmp_path: Path) -> None:
    judgement, divergence = verdict(make(tmp_path / "a"), make(tmp_path / "b"), tolerance=0.0)
    assert divergence is None
    assert [gap.distance for gap in judgement.gradients] == [0.0] * NUM_STEPS
    assert len(judgement.losses) == len(judgement.values) == NUM_STEPS
    assert {gap.name for gap in judgement.tensors} == set(state())


def test_rounding_is_forgiven_but_not_for_one_worker(tmp_path: Path) -> None:
    ours, theirs = make(tmp_path / "a"), make(tmp_path / "b", change=scaled(1 + 4e-16))
    assert verdict(ours, theirs)[1] is None
    assert verdict(ours, theirs, tolerance=0.0)[1] is not None


def test_sum_for_mean_is_named(tmp_path: Path) -> None:
    ours, theirs = make(tmp_path / "a"), make(tmp_path / "b", change=scaled(2.0))
    judgement, divergence = verdict(ours, theirs)
    assert divergence is not None
    assert divergence.place == "gradient of optimizer0 at step 1"
    assert "2.0000 × the sequential one" in divergence.what
    assert "a sum where a mean was meant" in divergence.hint
    assert judgement.gradients[0].distance == pytest.approx(1.0)
    assert not judgement.may_be_noise("float64")


def test_gradient_divided_by_the_number_of_workers_is_named(tmp_path: Path) -> None:
    ours, theirs = make(tmp_path / "a"), make(tmp_path / "b", change=scaled(0.5))
    divergence = verdict(ours, theirs)[1]
    assert divergence is not None
    assert "divided once too often" in divergence.hint


def test_other_factor_points_to_the_divisor(tmp_path: Path) -> None:
    ours, theirs = make(tmp_path / "a"), make(tmp_path / "b", change=scaled(32 / 31))
    divergence = verdict(ours, theirs)[1]
    assert divergence is not None
    assert "divisor" in divergence.hint


def test_single_wrong_parameter_is_named(tmp_path: Path) -> None:
    def wrong(step: int, tensors: list[Tensor | None]) -> list[Tensor | None]:
        assert tensors[1] is not None
        return [tensors[0], tensors[1] * 3, tensors[2]] if step == 3 else tensors

    names = ["net.weight", "net.bias", "scale"]
    ours = make(tmp_path / "a", names=names)
    theirs = make(tmp_path / "b", names=names, change=wrong)
    divergence = verdict(ours, theirs)[1]
    assert divergence is not None
    assert divergence.place == "gradient of optimizer0 at step 3"
    assert "only in net.bias [3]" in divergence.what


def test_missing_reduction_is_told_from_a_wrong_batch(tmp_path: Path) -> None:
    def noisy(step: int, tensors: list[Tensor | None]) -> list[Tensor | None]:
        draw = torch.Generator().manual_seed(1000 + step)
        return [
            t and None if t is None else t + torch.randn(t.shape, generator=draw) for t in tensors
        ]

    ours, theirs = make(tmp_path / "a"), make(tmp_path / "b", change=noisy)
    divergence = verdict(ours, theirs)[1]
    assert divergence is not None
    assert "the losses agree" in divergence.hint


def test_missing_step_is_found(tmp_path: Path) -> None:
    ours, theirs = make(tmp_path / "a"), make(tmp_path / "b", num_steps=NUM_STEPS - 1)
    divergence = verdict(ours, theirs)[1]
    assert divergence is not None
    assert "reads no more" in divergence.what or "does not make this step" in divergence.what


def test_additional_step_is_found(tmp_path: Path) -> None:
    ours, theirs = make(tmp_path / "a"), make(tmp_path / "b", num_steps=NUM_STEPS + 1)
    judgement, divergence = verdict(ours, theirs)
    assert divergence is not None
    assert math.isinf(judgement.gradients[-1].distance)


def test_none_and_zeros_are_not_the_same_gradient(tmp_path: Path) -> None:
    def without(step: int, tensors: list[Tensor | None]) -> list[Tensor | None]:
        return [*tensors[:2], None]

    def zeros(step: int, tensors: list[Tensor | None]) -> list[Tensor | None]:
        return [*tensors[:2], torch.zeros(5, dtype=torch.float64)]

    ours, theirs = make(tmp_path / "a", change=without), make(tmp_path / "b", change=zeros)
    divergence = verdict(ours, theirs)[1]
    assert divergence is not None
    assert "parameter 2 has no gradient in the sequential script" in divergence.what
    assert verdict(ours, make(tmp_path / "c", change=without), tolerance=0.0)[1] is None


def test_nan_on_both_sides_is_equal_and_told(tmp_path: Path) -> None:
    def broken(step: int, tensors: list[Tensor | None]) -> list[Tensor | None]:
        return [torch.full((3, 2), math.nan, dtype=torch.float64), *tensors[1:]]

    records = [
        make(tmp_path / name, change=broken, losses=lambda step: math.nan) for name in ("a", "b")
    ]
    assert verdict(*records, tolerance=0.0)[1] is None
    assert compare(*records, "float64").nan_at == 0


def test_nan_on_one_side_is_not_equal(tmp_path: Path) -> None:
    def broken(step: int, tensors: list[Tensor | None]) -> list[Tensor | None]:
        return [torch.full((3, 2), math.nan, dtype=torch.float64), *tensors[1:]]

    ours = make(tmp_path / "a")
    divergence = verdict(ours, make(tmp_path / "b", change=broken))[1]
    assert divergence is not None
    assert "on one side only" in divergence.what
    divergence = verdict(ours, make(tmp_path / "c", losses=lambda step: math.nan))[1]
    assert divergence is not None
    assert divergence.place.startswith("loss 1")


def test_equal_infinities_are_equal(tmp_path: Path) -> None:
    records = [make(tmp_path / name, losses=lambda step: math.inf) for name in ("a", "b")]
    assert verdict(*records, tolerance=0.0)[1] is None


def test_first_loss_that_differs_points_to_the_batch(tmp_path: Path) -> None:
    ours = make(tmp_path / "a")
    divergence = verdict(ours, make(tmp_path / "b", losses=lambda step: 1.0 / step + 0.01))[1]
    assert divergence is not None
    assert divergence.place == "loss 1, before the first step"
    assert "the batch" in divergence.hint


def test_metric_of_one_slice_is_found(tmp_path: Path) -> None:
    ours = make(tmp_path / "a")
    divergence = verdict(ours, make(tmp_path / "b", values=lambda step: step / 2))[1]
    assert divergence is not None
    assert divergence.place.startswith("number read from a tensor 1")


def test_stale_statistics_point_to_batchnorm(tmp_path: Path) -> None:
    ours = make(tmp_path / "a")
    stale = {"net.bn.running_mean": torch.full((3,), 0.1, dtype=torch.float64)}
    divergence = verdict(ours, make(tmp_path / "b", end=stale))[1]
    assert divergence is not None
    assert "BatchNorm" in divergence.hint
    assert "net.bn.running_mean [3]" in divergence.what


def test_tensor_that_only_one_side_has_is_found(tmp_path: Path) -> None:
    ours = make(tmp_path / "a")
    divergence = verdict(ours, make(tmp_path / "b", end={"new": torch.ones(2)}))[1]
    assert divergence is not None
    assert "the sequential script has no such tensor" in divergence.what


def test_whole_number_buffers_are_compared(tmp_path: Path) -> None:
    ours = make(tmp_path / "a")
    end = {"net.bn.num_batches_tracked": torch.tensor(5)}
    assert verdict(ours, make(tmp_path / "b", end=end))[1] is not None


def test_vanished_gradient_raises_no_alarm(tmp_path: Path) -> None:
    """The last gradients are rounding noise: 1e-16 of the first."""

    def vanishing(seed: int) -> Change:
        def change(step: int, tensors: list[Tensor | None]) -> list[Tensor | None]:
            draw = torch.Generator().manual_seed(seed)
            if step < 3:
                return tensors
            return [1e-16 * torch.randn(t.shape, generator=draw) for t in tensors if t is not None]

        return change

    ours = make(tmp_path / "a", change=vanishing(1))
    assert verdict(ours, make(tmp_path / "b", change=vanishing(2)))[1] is None


def test_small_gradient_hides_no_mistake(tmp_path: Path) -> None:
    """A gradient 1e-9 times the first is still far above rounding: twice of it is found."""

    def small(factor: float) -> Change:
        return lambda step, tensors: [
            None if t is None else t * (1.0 if step == 1 else 1e-9 * factor) for t in tensors
        ]

    ours = make(tmp_path / "a", change=small(1.0))
    divergence = verdict(ours, make(tmp_path / "b", change=small(2.0)))[1]
    assert divergence is not None
    assert divergence.place == "gradient of optimizer0 at step 2"


def test_numbers_that_cancel_to_zero_raise_no_alarm(tmp_path: Path) -> None:
    ours = make(tmp_path / "a", values=lambda step: 1e-17)
    assert verdict(ours, make(tmp_path / "b", values=lambda step: -3e-17))[1] is None


def test_noise_floor_excuses_what_rounding_does_and_no_more(tmp_path: Path) -> None:
    def bias(value: float) -> dict[str, Tensor]:
        return {"net.bias": torch.full((3,), value, dtype=torch.float64)}

    ours = make(tmp_path / "a", end=bias(1e-12))
    theirs = make(tmp_path / "b", end=bias(3e-12))
    moved = make(tmp_path / "c", end=bias(-1e-12))
    assert verdict(ours, theirs)[0].may_be_noise("float64")
    judgement, divergence = verdict(ours, theirs, noise=moved)
    assert divergence is None
    assert judgement.excused == ("net.bias",)
    far = make(tmp_path / "d", end=bias(1e-10))
    assert verdict(ours, far, noise=moved)[1] is not None


def test_noise_floor_grows_along_the_steps(tmp_path: Path) -> None:
    def at(step: int, factor: float) -> Change:
        return lambda now, tensors: [
            None if t is None else t * (factor if now == step else 1.0) for t in tensors
        ]

    ours = make(tmp_path / "a")
    moved = make(tmp_path / "noise", change=at(2, 1 + 1e-6))
    assert verdict(ours, make(tmp_path / "b", change=at(1, 1 + 5e-6)), noise=moved)[1] is not None
    assert verdict(ours, make(tmp_path / "c", change=at(3, 1 + 5e-6)), noise=moved)[1] is None


def test_noise_that_cannot_be_compared_excuses_nothing(tmp_path: Path) -> None:
    ours = make(tmp_path / "a")
    moved = make(tmp_path / "noise", losses=lambda step: math.nan)
    theirs = make(tmp_path / "b", losses=lambda step: 2.0)
    assert verdict(ours, theirs, noise=moved)[1] is not None


def test_large_gradients_are_compared_through_sketches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_record, "MAX_EXACT", 1000)

    def large(factor: float) -> Change:
        def change(step: int, tensors: list[Tensor | None]) -> list[Tensor | None]:
            draw = torch.Generator().manual_seed(step)
            big = torch.randn(100_000, generator=draw, dtype=torch.float64)
            big[7] *= factor
            return [big, *tensors]

        return change

    ours = make(tmp_path / "a", change=large(1.0))
    assert verdict(ours, make(tmp_path / "b", change=large(1.0)), tolerance=0.0)[1] is None
    assert verdict(ours, make(tmp_path / "c", change=large(1.001)))[1] is not None
    assert (tmp_path / "a" / "record").stat().st_size < NUM_STEPS * 200_000


def test_sketch_is_linear_and_keeps_the_norm() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 300, 1000, generator=draw, dtype=torch.float64)
    assert sketch(a).norm() == pytest.approx(float(a.norm()), rel=0.03)
    assert torch.allclose(sketch(a) - sketch(b), sketch(a - b))
    assert sketch(a[:3]) is not None
    assert torch.equal(sketch(a[:3]), a[:3])


def test_record_of_a_run_that_died_is_read_up_to_there(tmp_path: Path) -> None:
    make(tmp_path / "a")
    path = tmp_path / "a" / "record"
    path.write_bytes(path.read_bytes()[:-100])
    record = Record(tmp_path / "a")
    assert len(record.of_kind("gradient")) == NUM_STEPS
    assert record.state() == {}


def test_sparse_and_half_gradients_are_kept(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    sparse = torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (3,))
    recorder.gradients(1, "loose", [sparse, torch.ones(2, dtype=torch.bfloat16), None])
    recorder.close()
    record = Record(tmp_path)
    kept = record.tensors(record.of_kind("gradient")[0])
    assert kept["0"].tolist() == [3.0, 0.0, 0.0]
    assert set(kept) == {"0", "1"}
