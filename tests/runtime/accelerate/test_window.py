"""Batches that a graph takes by itself out of the order of their pass."""

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.trained import adam, alike, data, epochs, mlp, plain_step, state
from torch.utils.data import DataLoader, Subset, TensorDataset

from reparto.runtime.accelerate._window import Window, advance_of


@pytest.fixture
def seats(monkeypatch):
    """At which places windows were seated anew."""
    found, original = [], Window.seat

    def seat(self, index, batches, at):
        found.append(at)
        original(self, index, batches, at)

    monkeypatch.setattr(Window, "seat", seat)
    return found


def trained(loaders, step_of=plain_step):
    """A training over loaders, one after another."""
    model = mlp()
    step = step_of(model, adam(model))
    for loader in loaders:
        for number, batch in enumerate(loader):
            step(number, *batch)
    return state(model)


def loader(rows=None, num_rows=40, size=10, **how):
    found = TensorDataset(*data(num_rows))
    return DataLoader(found if rows is None else Subset(found, rows), size, shuffle=True, **how)


def test_a_pass_is_seated_once(player, seats):
    alike(lambda: trained([loader()] * 5), player, played=17)
    assert seats == [3, 0, 0, 0, 0]


def test_a_short_batch_at_the_end_is_not_taken_for_the_next(player, seats):
    alike(lambda: trained([loader(num_rows=47)] * 5), player)
    assert seats == [3, 0, 0, 0, 0]


def test_batches_that_are_left_out(player):
    def stepping(model, optimizer):
        step = plain_step(model, optimizer)
        return lambda number, x, y: None if number in (1, 2, 7) else step(number, x, y)

    alike(lambda: trained([loader(size=4)] * 5, stepping), player)


def test_a_pass_that_ends_early(player):
    def train():
        model, one = mlp(), loader(size=4)
        step = plain_step(model, adam(model))
        for last in (9, 3, 5, 9):
            for number, (x, y) in enumerate(one):
                step(number, x, y)
                if number == last:
                    break
        return state(model)

    alike(train, player)


def test_a_step_that_is_computed_between_those_that_are_played(player):
    def stepping(model, optimizer):
        def step(number, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            if number == 5 and loss > -1:  # asks within the step
                loss = 2 * loss
            loss.backward()
            optimizer.step()

        return step

    alike(lambda: trained([loader(size=4)] * 4, stepping), player)


def test_two_batches_a_step(player, seats):
    def stepping(model, optimizer):
        def step(number, x, y):
            if number % 2 == 0:
                optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            if number % 2:
                optimizer.step()

        return step

    alike(lambda: trained([loader(size=5)] * 5, stepping), player)
    assert seats[-4:] == [0, 1, 0, 1]


def test_two_loaders_at_once(player):
    def train():
        model, pair = mlp(), (loader(), loader(size=10))
        optimizer = adam(model)
        for _ in range(5):
            for (x, y), (z, _) in zip(*pair, strict=True):
                optimizer.zero_grad()
                (F.mse_loss(model(x), y) + model(z).square().mean()).backward()
                optimizer.step()
        return state(model)

    alike(train, player)


def test_an_order_that_is_longer_than_the_first(player, seats):
    def train():
        whole = TensorDataset(*data(60))
        part = DataLoader(Subset(whole, range(5, 35)), 10, shuffle=True)
        return trained([part] * 3 + [DataLoader(whole, 10, shuffle=True)] * 2)

    alike(train, player)
    assert seats[-2:] == [4, 5]  # each by itself


def test_batches_of_a_sampler_of_its_own(player):
    batches = [[3, 1, 4], [1, 5, 9], [2, 6, 5], [3, 5, 8]]
    alike(lambda: trained([DataLoader(TensorDataset(*data()), batch_sampler=batches)] * 4), player)


def test_the_same_batch_twice(player):
    def stepping(model, optimizer):
        step = plain_step(model, optimizer)
        return lambda number, x, y: [step(number, x, y) for _ in range(1 + number % 2)]

    alike(lambda: trained([loader()] * 5, stepping), player)


def test_numbers_that_are_wanted_later_keep_their_rows(player):
    """The row of the history and the places of batches are moved on together."""

    def train():
        model = mlp()
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return epochs(body, num=6), state(model)

    alike(train, player)


def test_only_parts_of_one_order_are_apart():
    order, other = torch.arange(20), torch.arange(20)
    one, two, *_ = order.split(5)
    assert advance_of(one, two) == 5
    assert advance_of(two, one) == 0
    assert advance_of(one, order[7:12]) == 0
    assert advance_of(one, order[10:13]) == 0
    assert advance_of(one, other[5:10]) == 0
    assert advance_of(order[0:10:2], order[10:20:2]) == 0
    assert advance_of(one.int(), two.int()) == 0
