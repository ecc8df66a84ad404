"""The largest batch from a few points: on paper, with memory that behaves in several ways."""

import random

import pytest

from reparto.plan import (
    MARGIN,
    MAX_ROWS,
    SMALLEST,
    Attempt,
    fit_line,
    friendly,
    is_measured,
    next_attempt,
    predicted_rows,
    recommended,
    usable_bytes,
)
from reparto.spec import FitPoint

MIB, GIB = 1 << 20, 1 << 30
IDLE = 300 * MIB


def played(memory, *, first, limit, idle=IDLE, most=40, has_heap=False):
    """Try sizes until none is left to try, on a device whose memory is a function of the rows."""
    points = []
    attempt = Attempt(rows=first, scale=SMALLEST if has_heap else 1.0)
    while attempt is not None and len(points) < most:
        line, rows = fit_line(points), attempt.rows
        taken = memory(rows, attempt.scale) if has_heap else memory(rows)
        fits = taken <= 0.99 * limit
        points.append(
            FitPoint(
                rows=rows,
                fits=fits,
                peak_bytes=int(taken) if fits else 0,
                predicted_bytes=line.at(rows) if line else 0,
                scale=attempt.scale,
            )
        )
        attempt = next_attempt(points, idle_bytes=idle, limit_bytes=limit, has_heap=has_heap)
    return points


def largest(memory, num_bytes):
    """The truth, by bisection."""
    low, high = 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if memory(middle) <= num_bytes else (low, middle)
    return low


@pytest.mark.parametrize("limit", [1 * GIB, 16 * GIB, 140 * GIB])
@pytest.mark.parametrize("row_bytes", [20_000, 700_000, 30 * MIB])
@pytest.mark.parametrize("base", [10 * MIB, 400 * MIB])
def test_three_runs_find_the_largest_batch_where_memory_is_a_line(limit, row_bytes, base):
    def memory(rows):
        return IDLE + base + row_bytes * rows

    points = played(memory, first=8, limit=limit)
    best = recommended(points, limit)
    assert best is points[-1]
    assert best.peak_bytes == pytest.approx(best.predicted_bytes, rel=1e-6)
    assert best.rows <= largest(memory, usable_bytes(limit))
    assert best.rows >= min(MAX_ROWS, 0.98 * largest(memory, usable_bytes(limit)) - 1)
    if base < 100 * MIB and row_bytes > 100_000:
        assert len(points) == 3 or limit == GIB
    assert all(point.fits for point in points)


def test_noise_of_the_heap_moves_the_answer_by_less_than_three_percent():
    draw = random.Random(0)
    errors = []
    for _ in range(200):
        slope = draw.uniform(0.05, 5) * MIB
        base = IDLE + draw.uniform(0, 100) * MIB
        noise = {}

        def memory(rows, slope=slope, base=base, noise=noise):
            return base + slope * rows + noise.setdefault(rows, draw.uniform(-2, 2) * MIB)

        points = played(memory, first=draw.choice([4, 16, 64]), limit=2 * GIB)
        best = recommended(points, 2 * GIB)
        truth = (usable_bytes(2 * GIB) - base) / slope
        errors.append(abs(best.rows - truth) / truth)
        first = next(point for point in points if point.predicted_bytes and point.fits)
        assert first.peak_bytes == pytest.approx(first.predicted_bytes, rel=0.1)
    errors.sort()
    assert errors[100] < 0.02
    assert errors[-1] < 0.05


def test_memory_that_grows_in_steps_is_found_to_be_within_a_step():
    def memory(rows):  # an allocator that takes 256 MiB at a time
        return IDLE + -(-(rows * 900_000) // (256 * MIB)) * 256 * MIB

    points = played(memory, first=32, limit=8 * GIB)
    best = recommended(points, 8 * GIB)
    assert memory(best.rows) <= 8 * GIB
    assert memory(int(best.rows * 1.1)) > usable_bytes(8 * GIB)


def test_memory_that_bends_upwards_is_found_after_some_that_do_not_fit():
    def memory(rows):  # similarities of all pairs of a batch
        return IDLE + 50_000 * rows + 40 * rows**2

    limit = 4 * GIB
    points = played(memory, first=64, limit=limit, most=12)
    best = recommended(points, limit)
    assert not all(point.fits for point in points)
    assert 0.9 * largest(memory, usable_bytes(limit)) <= best.rows <= largest(memory, limit)


@pytest.mark.parametrize("tensor_bytes", [2_000, 20_000, 200_000])
@pytest.mark.parametrize("limit", [1 * GIB, 8 * GIB])
@pytest.mark.parametrize("first", [4, 64, 256])
def test_gaps_of_a_heap_are_predicted_by_small_runs_of_the_same_scale(tensor_bytes, limit, first):
    def memory(rows, scale):  # forty tensors; the heap keeps gaps between those that are small
        tensors = 40 * rows * tensor_bytes
        is_mapped = rows * tensor_bytes > 32 * MIB * scale
        return IDLE + 60 * MIB + tensors * (1.0 if is_mapped else 1.4)

    points = played(memory, first=first, limit=limit, has_heap=True)
    tried = [point for point in points if point.scale == 1]
    assert tried[0].peak_bytes == pytest.approx(tried[0].predicted_bytes, rel=0.03)
    assert len(tried) == 1
    best = recommended(points, limit)
    assert best is tried[0]
    assert usable_bytes(limit) * 0.97 <= best.peak_bytes <= limit


def test_few_rows_that_are_all_that_fits_are_tried_as_they_will_be():
    points = played(
        lambda rows, scale: IDLE + rows * 1.2 * GIB, first=1, limit=2 * GIB, has_heap=True
    )
    assert [(point.rows, point.scale == 1) for point in points[-1:]] == [(1, True)]
    assert recommended(points, 2 * GIB).rows == 1


def test_own_batch_that_does_not_fit_is_made_smaller():
    def memory(rows):
        return IDLE + 2 * MIB * rows

    points = played(memory, first=4096, limit=2 * GIB)
    assert not points[0].fits
    best = recommended(points, 2 * GIB)
    assert best.rows == pytest.approx(largest(memory, usable_bytes(2 * GIB)), rel=0.02)


def test_large_own_batch_is_halved_for_the_second_point():
    def memory(rows):
        return IDLE + 10 * MIB * rows

    points = played(memory, first=100, limit=2 * GIB)
    assert points[1].rows == 50
    assert recommended(points, 2 * GIB).rows > 100


def test_there_is_no_answer_where_not_even_one_row_fits():
    points = played(lambda rows: 3 * GIB + rows, first=64, limit=2 * GIB)
    assert points[-1].rows == 1
    assert recommended(points, 2 * GIB) is None


def test_one_row_that_fits_where_two_do_not_is_the_answer():
    points = played(lambda rows: IDLE + rows * 1.2 * GIB, first=1, limit=2 * GIB)
    assert recommended(points, 2 * GIB).rows == 1


def test_memory_that_does_not_depend_on_the_batch_does_not_limit_it():
    points = played(lambda rows: IDLE + 50 * MIB, first=16, limit=2 * GIB)
    assert not is_measured(points, idle_bytes=IDLE, limit_bytes=2 * GIB)
    assert 2**16 < points[-1].rows <= MAX_ROWS
    assert len(points) < 12


def test_prediction_leaves_the_margin_and_a_line_needs_two_sizes():
    points = [FitPoint(rows=100, peak_bytes=1000 * MIB)]
    assert fit_line(points) is None
    assert predicted_rows(points, 8 * GIB) == 0
    points.append(FitPoint(rows=200, peak_bytes=1500 * MIB))
    line = fit_line(points)
    assert (line.base_bytes, line.row_bytes) == (500 * MIB, 5 * MIB)
    limit = 10_000 * MIB
    assert predicted_rows(points, limit) == friendly(int((10_000 * (1 - MARGIN) - 500) / 5))


@pytest.mark.parametrize(
    ("rows", "rounded"), [(7, 7), (63, 63), (64, 64), (67, 67), (807, 800), (6500, 6464)]
)
def test_rounding_costs_at_most_a_percent(rows, rounded):
    assert friendly(rows) == rounded
    assert friendly(rows) >= 0.99 * rows
