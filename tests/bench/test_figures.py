"""What figures are drawn of which rows, how flagged rows look, and where crossovers lie."""

import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from reparto.bench._crossover import Ratio, crossover, device_pairs, ratios
from reparto.bench._figures import drawings
from reparto.bench._panels import count_tick, draw_rows, line_look, time_tick
from reparto.bench._shown import (
    FLAGS,
    groups_of,
    is_sound,
    labels_of,
    look_of,
    mark_of,
    some_of,
    ways_of,
)
from reparto.spec import BenchReport
from tests.bench.made import SHAPES, infer_row, report, train_row


@pytest.fixture
def random():
    return np.random.default_rng(0)


def figure_of(rows, name, deadline_s=1.0):
    """The figure of that name, drawn, and what it is."""
    made = {one.name: one for one in drawings(BenchReport(measurements=tuple(rows)), deadline_s)}
    figure = Figure()
    made[name].draw(figure)
    return figure, made[name]


def lines_of(axes):
    return [line for line in axes.get_lines() if len(line.get_xdata()) > 1]


def markers_of(axes):
    return {line.get_marker() for line in axes.get_lines()}


# --------------------------------------------------------------------------- what is drawn


def test_every_figure_is_drawn_where_there_are_rows_for_it():
    names = [one.name for one in drawings(report(widths=2, batches=(8, 512)), 1.0)]
    assert names == [
        *("size", "width", "devices-cpu-cuda-0", "latency", "peak"),
        *(f"batch-{what}-depth-{depth}" for depth in (1, 2, 3) for what in ("epoch", "step")),
        *("batch-epoch-cnn", "batch-step-cnn"),
    ]


def test_no_figure_is_drawn_without_rows(random):
    assert drawings(BenchReport(), 1.0) == []
    only = train_row((50,), "cpu", 8, random, share_of_peak=None, epoch_s=None)
    names = [one.name for one in drawings(BenchReport(measurements=(only,)), 1.0)]
    assert names == ["size", "width", "batch-step-depth-1"]
    failed = replace(only, step_s=None, flags=("failed",), failure="out of memory")
    assert drawings(BenchReport(measurements=(failed,)), 1.0) == []


def test_a_panel_a_model_and_a_line_a_device_with_the_times_that_were_measured(random):
    rows = [
        train_row(hidden, device, batch, random)
        for hidden in ((50,), (100,))
        for device in ("cpu", "cuda:0")
        for batch in (8, 2, 512)
    ]
    figure, made = figure_of(rows, "batch-epoch-depth-1")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["50 (2.6k)", "100 (5.2k)"]
    assert [label for label, _ in made.entries] == ["cpu", "cuda:0"]
    for axes in figure.axes:
        assert [list(line.get_xdata()) for line in lines_of(axes)] == [[2, 8, 512]] * 2
    expected = [rows[1].epoch_s, rows[0].epoch_s, rows[2].epoch_s]
    assert list(lines_of(figure.axes[0])[0].get_ydata()) == expected


def test_times_against_size_have_a_line_a_depth_and_a_panel_a_device_and_batch(random):
    rows = [
        train_row(tuple(width * 2**k for width in shape), device, batch, random)
        for shape in SHAPES
        for k in range(3)
        for device in ("cpu", "cuda:0")
        for batch in (2, 8, 32, 512)
    ]
    figure, made = figure_of(rows, "size")
    assert len(figure.axes) == 2 * 3 and len(made.entries) == 3
    assert [len(lines_of(axes)) for axes in figure.axes] == [3] * 6
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[:3] == ["cpu, batch 2", "cpu, batch 32", "cpu, batch 512"]
    across, _ = figure_of(rows, "width")
    assert list(lines_of(across.axes[0])[0].get_xdata()) == [50, 100, 200]


def test_latency_shows_both_percentiles_and_the_deadline(random):
    rows = [infer_row((50,), "cpu", samples, "eager", random) for samples in (1, 64, 1024)]
    figure, made = figure_of(rows, "latency", deadline_s=0.02)
    middle, late, deadline = lines_of(figure.axes[0])
    assert list(middle.get_ydata()) == [row.step_s for row in rows]
    assert list(late.get_ydata()) == [row.p99_s for row in rows]
    assert set(deadline.get_ydata()) == {0.02} and "20 ms" in made.caption
    left, right = figure.axes[0].get_xlim()
    assert left < 1 and right > 1024


def test_a_call_that_failed_stands_where_it_would_have_been(random):
    rows = [infer_row((50,), "cpu", samples, "eager", random) for samples in (8, 64, 1024)]
    work = replace(rows[0].work, num_samples=0)  # as no samples were called
    rows[0] = replace(rows[0], work=work, step_s=None, p99_s=None, flags=("failed",))
    figure, _ = figure_of(rows, "latency")
    left, right = figure.axes[0].get_xlim()
    assert 4 < left < 8 and right > 1024


# -------------------------------------------------------------------------------- flags


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flagged_row_has_its_mark_and_the_line_does_not_lead_through_it(random, flag):
    rows = [train_row((50,), "cpu", batch, random) for batch in (2, 8, 32)]
    rows[1] = replace(rows[1], flags=(flag,))
    if flag == "failed":
        rows[1] = replace(rows[1], step_s=None)
    axes = Figure().subplots()
    draw_rows(axes, rows, lambda row: row.work.batch_rows, lambda row: row.step_s, line_look("k"))
    assert FLAGS[flag][0] in {line.get_marker() for line in axes.get_lines()[1:]}
    assert math.isnan(lines_of(axes)[0].get_ydata()[1]) == (flag != "noisy")


def test_a_noisy_row_has_a_bar_of_its_interval(random):
    row = train_row((50,), "cpu", 8, random, step_s=1.0, low_s=0.7, high_s=1.4, flags=("noisy",))
    axes = Figure().subplots()
    draw_rows(axes, [row], lambda row: 8, lambda row: 10 * row.step_s, line_look("k"))
    assert list(lines_of(axes)[0].get_ydata()) == [7, 14]


def test_the_gravest_flag_is_the_mark_and_only_noise_is_sound(random):
    row = train_row((50,), "cpu", 8, random)
    assert mark_of(row) is None and is_sound(row)
    assert mark_of(replace(row, flags=("noisy", "did-not-learn"))) == "did-not-learn"
    assert [flag for flag in FLAGS if is_sound(replace(row, flags=(flag,)))] == ["noisy"]
    assert not is_sound(replace(row, step_s=None))


def test_marks_in_a_figure_are_named_beside_it():
    for one in drawings(report(widths=1, batches=(8, 512)), 1.0):
        figure = Figure()
        one.draw(figure)
        drawn = set().union(*(markers_of(axes) for axes in figure.axes))
        assert {FLAGS[flag][0] for flag in one.marks} <= drawn


# ---------------------------------------------------------------------- names and groups


def test_ways_are_told_apart_by_what_differs_only(random):
    cpu = train_row((50,), "cpu", 8, random)
    gpu = train_row((50,), "cuda:0", 8, random)
    assert list(labels_of(ways_of([cpu, gpu])).values()) == ["cpu", "cuda:0"]
    several = [
        replace(cpu, threads=1), cpu, replace(gpu, form="accelerated"),
        replace(gpu, dtype="bf16", strategy="all-reduce", num_workers=2),
    ]  # fmt: skip
    assert list(labels_of(ways_of(several)).values()) == [
        "cpu · 1 thread · plain · f32 · single × 1",
        "cpu · 16 threads · plain · f32 · single × 1",
        "cuda:0 · accelerated · f32 · single × 1",
        "cuda:0 · plain · bf16 · all-reduce × 2",
    ]


def test_no_two_of_many_ways_look_the_same():
    assert len({look_of(index) for index in range(36)}) == 36


def test_perceptrons_are_grouped_by_depth_and_ordered_by_size(random):
    shapes = [(400,), (), (50,), (100, 50), (100,)]
    groups = groups_of([train_row(hidden, "cpu", 8, random) for hidden in shapes])
    assert [(one.name, one.models) for one in groups] == [
        ("depth-1", ("50", "100", "400")), ("depth-2", ("100-50",)), ("cnn", ("cnn",)),
    ]  # fmt: skip


def test_some_of_many_numbers_are_the_ends_and_some_between():
    assert some_of([512, 2, 8, 8, 32, 128], 3) == (2, 32, 512)
    assert some_of([8, 2], 3) == (2, 8) and some_of([], 3) == ()


def test_ticks_are_told_with_units():
    told = [time_tick(number) for number in (1e-6, 3e-4, 1e-3, 0.2, 1, 30, 1000)]
    assert told == ["1 µs", "300 µs", "1 ms", "200 ms", "1 s", "30 s", "1000 s"]
    told = [count_tick(number) for number in (50, 2601, 444_817, 1e6, 4.14e8, 2e9)]
    assert told == ["50", "2.6k", "445k", "1M", "414M", "2G"]


# ------------------------------------------------------------------------------ crossovers


def points(*times, sound=True):
    return [Ratio(10**i, number, sound, str(i), True) for i, number in enumerate(times, 3)]


def test_the_crossover_lies_where_the_line_passes_through_one():
    assert crossover(points(0.1, 0.5, 2, 20)) == pytest.approx(10**4.5)
    assert crossover(points(0.1, 0.25, 2, 20)) == pytest.approx(10 ** (4 + 2 / 3))


def test_there_is_no_crossover_where_one_device_is_always_faster():
    assert crossover(points(2, 3, 4)) is None
    assert crossover(points(0.2, 0.3)) is None
    assert crossover([]) is None


def test_one_model_on_the_wrong_side_does_not_move_the_crossover_far():
    assert 1e5 < crossover(points(0.1, 0.2, 0.5, 3, 0.9, 10, 20)) < 1e8
    assert crossover(points(0.1, 1.1, 0.2, 0.5, 5, 9)) == pytest.approx(10**6.3, rel=0.01)


def test_unsound_ratios_and_other_models_do_not_move_the_crossover(random):
    good = points(0.1, 0.5, 2, 20)
    spoilt = [*good, *points(30, sound=False), Ratio(2000, 90.0, True, "cnn", False)]
    assert crossover(spoilt) == crossover(good)


def test_devices_are_held_against_each_other_by_the_best_sound_exact_time(random):
    cpu = train_row((50,), "cpu", 8, random, step_s=1.0)
    gpu = train_row((50,), "cuda:0", 8, random, step_s=0.5)
    rows = [
        cpu, gpu, replace(gpu, form="accelerated", step_s=0.25), replace(gpu, step_s=1e-3,
        dtype="bf16"), replace(cpu, step_s=1e-3, flags=("did-not-learn",)),
        replace(gpu, step_s=1e-3, num_workers=4), replace(gpu, mode="infer", step_s=1e-3),
    ]  # fmt: skip
    assert device_pairs(rows) == [("cpu", "cuda:0")]
    (one,) = ratios(rows, ("cpu", "cuda:0"), 8)
    assert one.times == pytest.approx(4) and one.sound
    assert ratios(rows, ("cpu", "cuda:0"), 9) == []


def test_ratios_of_flagged_rows_are_crossed_out(random):
    rows = [
        train_row((50 * 2**k,), device, 8, random)
        for k in range(4)
        for device in ("cpu", "cuda:0")
    ]
    rows[2] = replace(rows[2], flags=("not-like-for-like",))
    figure, _ = figure_of(rows, "devices-cpu-cuda-0")
    line = lines_of(figure.axes[0])[0]
    assert [math.isnan(number) for number in line.get_ydata()] == [False, True, False, False]
    assert "X" in markers_of(figure.axes[0])
