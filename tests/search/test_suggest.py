import random

import pytest

from reparto.errors import UsageError
from reparto.search._ground import Ground, at, dimension_of, holds, place_of
from reparto.search._space import Choice, Float, Int
from reparto.search._suggest import Suggester, grid_size
from reparto.spec import Candidate, Evaluation

BOWL = Ground("bowl", {"x": Float(-5, 5), "y": Float(1e-3, 10, log=True), "k": Int(1, 9)})


def evaluation(candidate, score=None, status="done", busy_s=1.0):
    return Evaluation(candidate=candidate, status=status, score=score, busy_s=busy_s)


@pytest.mark.parametrize(
    "dimension",
    [Float(-1, 3), Float(1e-4, 1, log=True), Int(1, 100, log=True), Choice(("a", "b"))],
)
def test_place_of_a_value_is_where_it_is_found(dimension):
    for place in (0.0, 0.26, 0.5, 0.77, 1.0):
        value = at(dimension, place)
        assert holds(dimension, value)
        assert at(dimension, place_of(dimension, value)) == pytest.approx(value, rel=1e-9)


def test_settings_are_understood_as_requests_give_them():
    assert dimension_of("a", [1, 2]) == Choice((1, 2))
    assert dimension_of("a", "gini") == Choice(("gini",))
    assert dimension_of("a", {"low": 1, "high": 5}) == Int(1, 5)
    assert dimension_of("a", {"low": 1e-3, "high": 1, "log": True}) == Float(1e-3, 1.0, True)
    assert dimension_of("a", [[10, 5], [3]]) == Choice(((10, 5), (3,)))


@pytest.mark.parametrize("search", ["random", "bayes", "grid"])
def test_settings_that_are_not_asked_for_keep_their_defaults_if_so_asked(search):
    ground = Ground("a", {"x": Float(0, 5), "k": Int(1, 9)}, ({"x": 1.0, "k": 2},))
    made = Suggester([ground.narrowed({"k": [2, 7]}, only=True)], search, higher_is_better=True)
    found = [dict(made.next().settings) for _ in range(2)]
    assert sorted(found, key=str) == [{"k": 2}, {"k": 7}]
    assert made.next() is None


def test_range_between_whole_numbers_is_one_of_numbers_where_the_technique_takes_any():
    ground = Ground("a", {"x": Float(0, 5), "k": Int(1, 9)}).narrowed(
        {"x": {"low": 0, "high": 1}, "k": {"low": 2, "high": 4}, "new": {"low": 0, "high": 1}}
    )
    assert ground.space == {"x": Float(0.0, 1.0), "k": Int(2, 4), "new": Int(0, 1)}


@pytest.mark.parametrize(
    "given", [[], {"low": 3, "high": 1}, {"low": 0, "high": 1, "log": True}, {"from": 1}]
)
def test_what_is_no_space_is_refused_with_its_name(given):
    with pytest.raises(UsageError, match=r"forest\.depth"):
        dimension_of("forest.depth", given)


def test_grid_is_each_point_of_each_technique_once_in_turns():
    grounds = [
        Ground("a", {"x": Float(0, 1)}).narrowed({"x": [1, 2], "z": [True, False]}),
        Ground("b", {}).narrowed({"n": [7]}),
    ]
    made = Suggester(grounds, "grid", higher_is_better=True)
    found = []
    while one := made.next():
        found.append((one.technique, dict(one.settings)))
    assert grid_size(grounds) == len(found) == 5
    assert found[:2] == [("a", {"x": 1, "z": True}), ("b", {"n": 7})]
    assert len({str(one) for one in found}) == 5


def test_grid_over_ranges_has_each_point_once():
    made = Suggester([BOWL], "grid", higher_is_better=True, seed=3)
    found = set()
    while one := made.next():
        found.add(tuple(one.settings.items()))
    assert len(found) == 27


def test_the_same_seed_draws_the_same():
    def drawn(seed):
        made = Suggester([BOWL], "random", higher_is_better=True, seed=seed)
        return [dict(made.next().settings) for _ in range(5)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_each_technique_begins_with_its_portfolio():
    grounds = [
        Ground("a", {"x": Float(0, 1)}, ({"x": 0.5},)),
        Ground("b", {"x": Float(0, 1)}, ({"x": 0.1}, {"x": 0.2})),
    ]
    made = Suggester(grounds, "asha", higher_is_better=True)
    first = [made.next() for _ in range(2)]
    assert [(one.technique, one.settings["x"], one.origin) for one in first] == [
        ("a", 0.5, "portfolio"),
        ("b", 0.1, "portfolio"),
    ]


def test_values_of_a_request_are_the_only_ones_that_are_tried():
    ground = Ground("a", {"x": Float(0, 1), "y": Int(1, 3)}, ({"x": 0.5, "y": 1}, {"x": 0.25}))
    made = Suggester([ground.narrowed({"x": [0.25, 0.75]})], "asha", higher_is_better=True)
    found = [made.next().settings for _ in range(7)]
    assert {one["x"] for one in found} <= {0.25, 0.75}
    assert made.next() is None  # 2 × 3 points, and what the portfolio says of one of them


def run(search, num, seed):
    made = Suggester([BOWL], search, higher_is_better=False, seed=seed)
    best = float("inf")
    for _ in range(num):
        one = made.next()
        x, y, k = (one.settings[name] for name in "xyk")
        score = (x - 2) ** 2 + (y - 0.1) ** 2 * 30 + abs(k - 4)
        best = min(best, score)
        made.told(evaluation(one, score))
    return best


def test_informed_search_gets_nearer_than_chance():
    seeds = range(5)
    informed = sorted(run("bayes", 60, seed) for seed in seeds)
    by_chance = sorted(run("random", 60, seed) for seed in seeds)
    assert informed[2] < 0.5 * by_chance[2]


def test_better_techniques_are_tried_more_often():
    grounds = [Ground(name, {"x": Float(0, 1)}) for name in "abc"]
    made = Suggester(grounds, "asha", higher_is_better=True)
    counts = dict.fromkeys("abc", 0)
    for _ in range(120):
        one = made.next()
        counts[one.technique] += 1
        made.told(evaluation(one, {"a": 0.1, "b": 0.9, "c": 0.5}[one.technique]))
    assert counts["b"] > counts["c"] > counts["a"] > 5


def test_technique_that_only_fails_is_left():
    grounds = [Ground(name, {"x": Float(0, 1)}) for name in "ab"]
    made = Suggester(grounds, "random", higher_is_better=True)
    for _ in range(40):
        one = made.next()
        failed = one.technique == "a"
        made.told(evaluation(one, None if failed else 1.0, "failed" if failed else "done"))
    assert all(made.next().technique == "b" for _ in range(10))


def test_candidates_that_would_not_end_in_time_are_not_thought_of():
    grounds = [Ground(name, {"x": Float(0, 1)}) for name in "ab"]
    made = Suggester(grounds, "random", higher_is_better=True)
    for _ in range(2):
        one = made.next()
        made.told(evaluation(one, 0.5, busy_s=100.0 if one.technique == "a" else 1.0))
    assert {made.next(most_s=10.0).technique for _ in range(10)} == {"b"}


def test_resumed_search_goes_on_counting_and_repeats_nothing():
    earlier = [
        evaluation(Candidate(number=number, technique="a", settings={"x": number}), 0.1)
        for number in range(3)
    ]
    made = Suggester(
        [Ground("a", {}).narrowed({"x": [0, 1, 2, 3]})], "grid", higher_is_better=True
    )
    made.recall(earlier)
    only = made.next()
    assert (only.number, only.settings) == (3, {"x": 3})
    assert made.next() is None


def test_named_candidates_keep_their_numbers():
    named = [Candidate(number=17, technique="a", settings={"x": 1})]
    made = Suggester([Ground("a", {})], "asha", higher_is_better=True, candidates=named)
    assert made.next() == named[0]
    assert made.next() is None


def test_pruned_and_failed_trials_are_taken_by_the_model_of_settings():
    made = Suggester([BOWL], "bayes", higher_is_better=False, seed=0)
    draws = random.Random(0)
    for index in range(30):
        one = made.next()
        status = ("done", "pruned", "failed")[index % 3]
        made.told(evaluation(one, draws.random() if status == "done" else None, status), 0.5)
    assert made.next() is not None


@pytest.mark.parametrize("search", ["random", "bayes"])
def test_no_point_of_a_small_space_is_missed(search):
    ground = Ground("a", {"x": Choice((1, 2, 3, 4)), "y": Choice(("p", "q", "r"))})
    made, found = Suggester([ground], search, higher_is_better=True), []
    while one := made.next():
        found.append(tuple(one.settings.values()))
        made.told(evaluation(one, score=float(one.settings["x"])))
    assert len(found) == len(set(found)) == 12


def test_random_search_that_is_resumed_goes_on_where_it_was():
    grounds = [Ground("a", {"x": Float(0, 1)})]
    whole = Suggester(grounds, "random", higher_is_better=True)
    drawn = [whole.next() for _ in range(80)]
    resumed = Suggester(grounds, "random", higher_is_better=True)
    resumed.recall([evaluation(one, 0.5) for one in drawn[:50]])
    assert [resumed.next() for _ in range(30)] == drawn[50:]
