"""Numbers that come later are the numbers."""

import json
import math
import pickle
from collections import deque
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.trained import accelerated, adam, alike, epochs, mlp, state

import reparto
from reparto.runtime.accelerate import Later, now


def coming(value):
    return Later(lambda: value)


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: 2 - x,
        lambda x: 3 * x / 4,
        lambda x: 1 / x,
        lambda x: x**2,
        lambda x: 2**x,
        lambda x: divmod(x, 2),
        lambda x: x // 1,
        lambda x: -x % 3,
        abs,
        float,
        int,
        bool,
        round,
        math.sqrt,
        math.floor,
        lambda x: round(x, 1),
        lambda x: x > 2,
        lambda x: x == 2.75,
        lambda x: (min(x, 1), max(1, x)),
        lambda x: {2.75: "here"}[x],
        lambda x: f"{x:.1f} {x} {x!r} {x:>8}",
        lambda x: "%.2f" % x,
        lambda x: x.is_integer(),
        lambda x: np.mean([x, x]),
        lambda x: np.asarray(x).dtype.name,
        lambda x: torch.tensor([float(x)]).item(),
        lambda x: x + Fraction(1, 4),
        lambda x: sum([x, x, 1]),
    ],
)
def test_what_is_done_with_a_number_is_done_with_a_number_to_come(use):
    assert use(coming(2.75)) == use(2.75)
    assert type(now(use(coming(2.75)))) is type(use(2.75))


def test_an_index_is_a_number_to_come():
    assert list("abc")[coming(1)] == "b"


def test_a_sum_of_many_thousand_terms_is_added_up_in_order():
    values = [0.1 * (-3) ** (index % 7) for index in range(20_000)]
    total, plain = 0.0, 0.0
    for value in values:
        total += coming(value) * 3
        plain += value * 3
    assert now(total) == plain


def test_a_number_is_fetched_once():
    asked = []
    later = Later(lambda: asked.append(1) or 5.0)
    assert (later + 1, later * 2, float(later)) == (6.0, 10.0, 5.0)
    assert asked == [1]


def test_now_leaves_numbers_in_the_place_of_those_to_come():
    values = [coming(1.5), 2, "x", coming(3) * 2]
    assert now(values) is values
    assert json.dumps(values) == '[1.5, 2, "x", 6]'
    assert now("text") == "text"


def test_a_number_to_come_is_pickled_as_a_number():
    found = pickle.loads(pickle.dumps([coming(1.5)]))
    assert [type(one) for one in found] == [float]


def test_outside_of_a_run_a_number_comes_at_once():
    assert type(reparto.later(torch.tensor(2))) is int
    assert reparto.now([1]) == [1]


@pytest.mark.parametrize("into", [np.zeros(()), torch.zeros(()), deque(), Fraction(1), None])
def test_what_is_no_plain_number_and_no_list_gets_numbers(into):
    with accelerated():
        assert type(reparto.later(torch.tensor(2.5), into)) is float
        assert type(reparto.later(torch.tensor(2.5), 0.0)) is Later


def test_what_has_no_single_real_number_is_read_as_alone():
    with accelerated():
        assert reparto.later(torch.tensor(1 + 2j)) == 1 + 2j
        assert type(reparto.later(np.float32(2.5))) is float
        with pytest.raises(RuntimeError):
            reparto.later(torch.zeros(2))


def test_numbers_of_played_steps_come_in_order(player):
    def train():
        model, losses, total, right = mlp(), [], 0.0, 0
        optimizer = adam(model)

        def body(step, x, y):
            nonlocal total, right
            optimizer.zero_grad()
            out = model(x)
            loss = F.mse_loss(out, y)
            losses.append(reparto.later(loss, losses))
            loss.backward()
            optimizer.step()
            total += reparto.later(loss, total) * len(x)
            right += reparto.later((out > y).sum(), right)
            if step == 13:
                losses.append(losses[-1] > 1)  # asked for in between
                losses.append(reparto.later(loss * 2, losses))

        epochs(body, num=6)
        return reparto.now(losses), reparto.now(total), reparto.now(right), state(model)

    alike(train, player, played=21)


def test_a_number_that_was_changed_after_the_step_is_the_changed_one(player):
    def train():
        model, told = mlp(), []
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            loss = loss.detach()
            loss *= 2
            told.append(reparto.later(loss, told))

        epochs(body)
        return reparto.now(told)

    alike(train, player)


def test_more_numbers_wait_than_there_is_room_for():
    def train():
        told = []
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        x = torch.ones(1, 1)
        for _ in range(1100):
            optimizer.zero_grad()
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
            told.append(reparto.later(loss, told))
        return reparto.now(told)

    alike(train, played=1097)
