"""Orders that are drawn before they are needed: those that torch's sampler draws."""

import os

import pytest
import torch
from tests.runtime.accelerate.trained import accelerated
from torch.utils.data import DataLoader, TensorDataset

from reparto.runtime.accelerate import _ahead
from reparto.runtime.accelerate._ahead import WORTH, Ahead, order_of, seed_of


@pytest.fixture
def drawn_now(monkeypatch):
    """Orders that were drawn when they were needed."""
    found = []

    def drawing(seed, total):
        order = order_of(seed, total)
        if _ahead._thread.get_ident() == main:
            found.append(total)
        return order

    main = _ahead._thread.get_ident()
    monkeypatch.setattr(_ahead, "order_of", drawing)
    return found


def orders(ahead, num, between=lambda: None):
    """Orders of passes as a loader begins them, and what is drawn behind them."""
    found = []
    torch.manual_seed(5)
    for _ in range(num):
        seed_of()  # that of workers
        seed = seed_of()
        found.append(order_of(seed, WORTH) if ahead is None else ahead.order(seed, WORTH))
        if ahead is not None:
            ahead.foresee(WORTH)
        between()
    return torch.stack([*found, torch.randperm(WORTH)])


def test_orders_are_the_same_and_drawn_ahead(drawn_now):
    ahead = Ahead()
    assert torch.equal(orders(ahead, 4), orders(None, 4))
    assert drawn_now == [WORTH]  # the first


def test_whoever_draws_between_gets_another_order(drawn_now):
    ahead = Ahead()
    between = lambda: torch.rand(1)  # noqa: E731
    assert torch.equal(orders(ahead, 4, between), orders(None, 4, between))
    assert drawn_now == [WORTH] * 4


def test_a_loader_s_passes_are_those_of_torch():
    loader = DataLoader(TensorDataset(torch.arange(WORTH)), 900, shuffle=True)

    def passes():
        torch.manual_seed(2)
        found = [batch for _ in range(4) for (batch,) in loader]
        return torch.cat([*found, torch.randperm(9)])

    plain = passes()
    with accelerated() as accelerator:
        assert accelerator.ahead is not None
        assert torch.equal(passes(), plain)


def test_a_child_process_does_not_wait_for_the_thread_of_its_parent():
    ahead = Ahead()
    first = orders(ahead, 2)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(orders(ahead, 2), first) else 1)
    assert os.waitpid(child, 0)[1] == 0
