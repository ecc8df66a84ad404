"""What times of steps decide; the times of the first tests were measured on two cores."""

import random

import pytest

from reparto.runtime.accelerate._trials import (
    MOST,
    MOST_IN_ALL,
    SHORT_S,
    TURN,
    WORTH,
    Trial,
    judged,
)

#: Milliseconds of steps of the perceptron `800-400`, products by MKL and by oneDNN.
MKL = [23.4, 22.2, 22.0, 21.9, 22.2]
ONEDNN = [14.8, 12.3, 13.2, 12.8, 12.7]


def test_what_is_clearly_faster_is_kept_after_three_steps_each():
    assert judged(MKL[:2], ONEDNN[:2]) is None
    found = judged(MKL[:3], ONEDNN[:3])
    assert found.is_kept
    assert found.gain == pytest.approx(1.67, abs=0.05)
    assert found.num_steps == 6


def test_what_is_clearly_slower_is_left_after_two_steps_each():
    found = judged(ONEDNN[:2], MKL[:2])
    assert not found.is_kept
    assert found.gain < 0.8


def test_short_steps_are_cheap_and_disturbed_so_more_of_them_decide():
    assert judged(ONEDNN[:4], MKL[:4], are_long=False) is None
    assert judged(MKL[:4], ONEDNN[:4], are_long=False) is None
    assert not judged(ONEDNN, MKL, are_long=False).is_kept
    assert judged(MKL, ONEDNN, are_long=False).is_kept


def test_a_small_gain_takes_more_steps_and_is_kept():
    plain = [10.0, 10.1, 10.2, 9.95, 10.05]
    other = [9.5, 9.4, 9.45, 9.55, 9.35]
    assert judged(plain[:4], other[:4]) is None
    assert judged(plain, other).is_kept


def test_what_is_faster_by_less_than_is_worth_it_is_left():
    plain, other = [1.0 + k / 1e4 for k in range(6)], [0.99 + k / 1e4 for k in range(6)]
    found = judged(plain, other)
    assert 1 < found.gain < WORTH
    assert not found.is_kept


def test_a_step_that_something_else_held_up_decides_nothing():
    plain = [10.0, 10.1, 10.2, 9.9, 10.0, 10.1]
    other = [10.0, 10.1, 500.0, 9.9, 10.0, 10.1]
    found = judged(plain, other)
    assert found is None or not found.is_kept
    assert judged(other, plain) is None or not judged(other, plain).is_kept


def test_equal_ways_are_seldom_told_apart():
    draws = random.Random(1)
    kept = 0
    for _ in range(200):
        trial, verdict = Trial(1.0), None
        while verdict is None:
            verdict = trial.took(draws.gauss(1.0, 0.05), "rows")
        kept += verdict.is_kept
        assert verdict.gain > 0.9
    assert kept <= 10


def test_a_gain_is_found_under_noise():
    draws, kept = random.Random(1), 0
    for _ in range(100):
        trial, verdict = Trial(1.0), None
        while verdict is None:
            verdict = trial.took(draws.gauss(1.0, 0.05) / (1.2 if trial.goes_other else 1), "r")
        kept += verdict.is_kept
    assert kept >= 95


def test_long_steps_take_turns_and_the_first_is_not_counted():
    trial, went = Trial(10.0), []
    for _ in range(6):
        went.append(trial.goes_other)
        assert trial.took(1.0, 0) is None
    assert went == [True, False, True, False, True, False]
    assert sum(map(len, trial._times[0])) == 5


def test_short_steps_go_the_same_way_three_times_and_warm_up():
    trial, went = Trial(SHORT_S / 2), []
    for number in range(4 * TURN):
        went.append(trial.goes_other)
        # The first of each turn would decide, if it were counted.
        assert trial.took(9.0 if number % TURN == 0 else 0.001, 0) is None
    assert went == ([True] * TURN + [False] * TURN) * 2
    assert {seconds for times in trial._times[0] for seconds in times} == {0.001}


def test_steps_of_other_kinds_are_not_compared():
    """Short batches are all on one side: held against full ones, they would decide."""
    trial = Trial(1.0)
    for _ in range(20):
        is_other = trial.goes_other
        assert trial.took(0.1 if is_other else 1.0, "short" if is_other else "full") is None


@pytest.mark.parametrize("num_kinds", [1, 1000])
def test_a_trial_comes_to_an_end(num_kinds):
    draws, trial = random.Random(2), Trial(1.0)
    for number in range(1, MOST_IN_ALL + 2):
        verdict = trial.took(draws.uniform(0.5, 1.5), number % num_kinds)
        if verdict is not None:
            break
    assert verdict is not None and not verdict.is_kept
    assert number >= (2 * MOST if num_kinds == 1 else MOST_IN_ALL)
