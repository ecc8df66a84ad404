"""Medians, their intervals, percentiles."""

import random

from reparto.bench._statistics import interval, median, percentile


def test_interval_holds_the_true_median_in_about_19_of_20_samples():
    generator = random.Random(0)
    held = 0
    for _ in range(2000):
        low, high = interval([generator.expovariate(1.0) for _ in range(40)])
        held += low <= 0.6931 <= high
    assert 0.93 <= held / 2000 <= 0.995


def test_interval_of_few_times_is_all_that_was_seen():
    assert interval([3.0, 1.0, 2.0]) == (1.0, 3.0)


def test_interval_lies_around_the_median():
    times = [float(number * number % 97) for number in range(60)]
    low, high = interval(times)
    assert low <= median(times) <= high


def test_percentile_of_one_call_is_that_call():
    assert percentile([2.0], 0.99) == 2.0
