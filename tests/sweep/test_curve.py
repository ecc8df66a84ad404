"""From the steps that workers tell of to one curve."""

import itertools
import math

import pytest

from reparto.spec import StepRecord
from reparto.sweep._curve import MAX_POINTS, Curve


def record(step, loss=1.0, **changes):
    made = {"samples": 4, "time_s": step * 0.5, "waited_s": 0.1, "wire_bytes": 10.0}
    return StepRecord(step=step, loss=loss, **{**made, **changes})


def test_step_is_on_the_curve_once_every_worker_has_told_of_it():
    curve = Curve(2)
    curve.add(0, record(1))
    curve.add(0, record(2))
    assert curve.points() == ()
    curve.add(1, record(1))
    assert [point.step for point in curve.points()] == [1]


def test_costs_are_means_over_workers_while_time_and_samples_are_those_of_worker_0():
    curve = Curve(2)
    for step in (1, 2, 3):
        curve.add(1, record(step, loss=3.0, wire_bytes=30.0, waited_s=0.3, time_s=99.0))
        curve.add(0, record(step, loss=1.0))
    last = curve.points()[-1]
    assert (last.step, last.samples, last.time_s, last.loss) == (3, 12, 1.5, 2.0)
    assert last.wire_bytes == pytest.approx(60.0)
    assert last.waited_s == pytest.approx(0.6)


def test_worker_without_rows_has_no_say_in_the_loss():
    curve = Curve(2)
    curve.add(0, record(1, loss=1.0))
    curve.add(1, record(1, loss=None))
    assert curve.points()[0].loss == 1.0


def test_trend_begins_with_the_first_loss_and_follows_over_about_twenty_steps():
    curve = Curve(1)
    for step in range(1, 301):
        curve.add(0, record(step, loss=2.0 if step <= 100 else 1.0))
    trends = [point.trend for point in curve.points()]
    assert trends[0] == trends[99] == pytest.approx(2.0)
    assert trends[119] == pytest.approx(1 + math.exp(-1), rel=0.01)
    assert trends[-1] == pytest.approx(1.0, abs=1e-3)


def test_trend_looks_back_over_samples_not_over_steps():
    small, large = Curve(1, horizon=80.0), Curve(1, horizon=80.0)
    for step in range(1, 41):
        small.add(0, record(step, loss=1.0 if step > 20 else 2.0, samples=4))
    for step in range(1, 11):
        large.add(0, record(step, loss=1.0 if step > 5 else 2.0, samples=16))
    assert small.points()[-1].trend == pytest.approx(large.points()[-1].trend, rel=1e-6)


def test_lucky_first_batch_reaches_no_target():
    curve = Curve(1, target=0.5)
    for step, loss in enumerate([0.1] + [1.0] * 40, start=1):
        curve.add(0, record(step, loss=loss))
    assert curve.reached is None


def test_target_is_reached_where_the_trend_is_first_as_low():
    curve = Curve(1, target=0.5)
    for step, loss in enumerate([1.0] * 5 + [0.1] * 40 + [5.0], start=1):
        curve.add(0, record(step, loss=loss))
    assert curve.reached is not None
    assert curve.reached.step == next(p.step for p in curve.points() if p.trend <= 0.5)
    assert curve.reached.step > 2  # a single low loss is no trend


def test_curve_of_a_long_run_is_thinned_and_keeps_both_ends():
    curve = Curve(1)
    num_steps = 5 * MAX_POINTS
    for step in range(1, num_steps + 1):
        curve.add(0, record(step))
    steps = [point.step for point in curve.points()]
    assert len(steps) <= MAX_POINTS + 1
    assert (steps[0], steps[-1]) == (1, num_steps)
    assert len({after - before for before, after in itertools.pairwise(steps[:-1])}) == 1
    assert curve.points()[-1].samples == 4 * num_steps


def test_run_without_steps_has_no_curve():
    assert Curve(2).points() == ()
