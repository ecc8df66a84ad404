"""Branin's function can be searched, without data."""

import math
import pickle

import pytest

from reparto.errors import UsageError
from reparto.search._function_work import FUNCTIONS, FunctionWork, branin, function_named
from reparto.spec import Candidate, Rung


def value_at(settings, technique="branin", share=1.0):
    work = pickle.loads(pickle.dumps(FunctionWork()))
    work.open(threads=1)
    attempt = work.attempt(Candidate(number=0, technique=technique, settings=settings), seed=0)
    reached = attempt.reach(Rung(fold=0, share=share))
    attempt.close()
    work.close()
    return reached.score.score


@pytest.mark.parametrize("x1, x2", [(-math.pi, 12.275), (math.pi, 2.275), (9.42478, 2.475)])
def test_branin_is_least_at_its_three_minima(x1, x2):
    assert value_at({"x1": x1, "x2": x2}) == pytest.approx(FUNCTIONS["branin"].least, abs=1e-5)


def test_no_point_of_a_fine_grid_is_lower_than_the_least():
    grid = [branin(-5 + 15 * a / 300, 15 * b / 300) for a in range(301) for b in range(301)]
    least = FUNCTIONS["branin"].least
    assert least <= min(grid) <= least + 0.01


def test_a_known_point_has_its_known_value():
    assert value_at({"x1": 0, "x2": 0}) == pytest.approx(55.602112642270262)


def test_a_part_of_it_is_all_of_it():
    point = {"x1": 1.5, "x2": 7}
    assert value_at(point, share=1 / 9) == value_at(point)


@pytest.mark.parametrize(
    "name", ["branin", "Branin", "BraninFunction", "branin-hoo", "BRANIN_HOO"]
)
def test_it_is_known_in_every_spelling(name):
    assert function_named(name).kind == "branin"


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"x1": 0.0}, "x2 is missing"),
        ({"x1": 0.0, "x2": 0.0, "x3": 0.0}, "no argument 'x3'"),
        ({"x1": "0", "x2": 0.0}, "x1 is '0'"),
        ({"x1": math.nan, "x2": 0.0}, "x1 is nan"),
        ({"x1": True, "x2": 0.0}, "x1 is True"),
    ],
)
def test_what_is_no_point_is_refused(settings, told):
    with pytest.raises(UsageError, match=told):
        value_at(settings)


def test_an_unknown_function_is_refused():
    with pytest.raises(UsageError, match="rosenbrock is no function that is known"):
        value_at({}, technique="rosenbrock")
