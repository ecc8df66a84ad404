"""Slices in proportion to speed."""

import statistics

import pytest
import torch

from reparto.errors import UsageError
from reparto.runtime import _balance
from reparto.runtime._balance import Balance, Pass, shared_out, weights_of
from reparto.strategies import AllReduce


@pytest.mark.parametrize("total", [1, 2, 3, 4, 7, 64, 1000])
@pytest.mark.parametrize("weights", [(0.7, 0.1, 0.2), (1 / 3,) * 3, (0.998, 0.001, 0.001)])
def test_rows_add_up_and_nobody_is_left_out_where_there_are_enough(total, weights):
    split = shared_out(total, weights)
    assert sum(split.sizes) == total
    if total >= 3:
        assert min(split.sizes) >= 1
    if total == 1000:
        for size, weight in zip(split.sizes, weights, strict=True):
            assert abs(size - total * weight) <= 2


def test_weights_are_one_for_each_worker():
    assert weights_of("2:1:1", 3) == (0.5, 0.25, 0.25)
    with pytest.raises(UsageError, match="weighs 2 workers, and there are 3"):
        AllReduce.Config(balance="2:1").check(3)


def test_batches_that_were_drawn_ahead_keep_their_split():
    ahead, behind = Pass((0.5, 0.5)), Pass((0.5, 0.5))
    first = [ahead.next_split(8).sizes for _ in range(3)]
    also_first = [behind.next_split(8).sizes]
    for one in (ahead, behind):
        one.change_after(3, (0.75, 0.25))  # as many as the one that is ahead has drawn
    first += [ahead.next_split(8).sizes for _ in range(2)]
    also_first += [behind.next_split(8).sizes for _ in range(4)]
    assert first == also_first
    assert first == [(4, 4)] * 3 + [(6, 2)] * 2


class Peers:
    """A world of workers of known speeds, on a clock of its own."""

    def __init__(self, monkeypatch, costs, fixed_s=0.0):
        self.size, self.rank = len(costs), 0
        self.costs, self.fixed_s = costs, fixed_s
        self.num_steps, self.now, self.history = 0, 0.0, []
        self.waiting = type("Watch", (), {"seconds": 0.0})()
        self.data, self.notes = self, []
        self.balance = Balance(self, "auto")
        monkeypatch.setattr(_balance.time, "perf_counter", lambda: self.now)

    def note(self, text):
        self.notes.append(text)

    def seconds(self):
        weights = self.balance.weights
        return [
            self.fixed_s * cost + cost * weight
            for cost, weight in zip(self.costs, weights, strict=True)
        ]

    def gather_all(self, mine):
        """What every worker would say of as many steps as the one here has looked at."""
        seen = self.history[-len(self.balance._seconds) :]
        everyone = []
        for rank in range(self.size):
            speed = statistics.median(weights[rank] / seconds[rank] for weights, seconds in seen)
            second = statistics.median(seconds[rank] for _, seconds in seen)
            everyone.append(torch.tensor([speed, second, *mine[2:]], dtype=torch.float64))
        assert torch.allclose(mine, everyone[0])
        return everyone

    def step(self):
        seconds = self.seconds()
        own, slowest = seconds[0], max(seconds)
        self.history.append((self.balance.weights, seconds))
        self.num_steps += 1
        self.share = self.balance.weights[0]
        self.now += slowest
        self.waiting.seconds += slowest - own
        self.balance.after_step()


@pytest.mark.parametrize("fixed_s", [0.0, 0.05])
def test_unlike_workers_come_to_take_the_same_time(monkeypatch, fixed_s):
    peers = Peers(monkeypatch, [0.1, 0.1, 0.2, 0.2], fixed_s)
    for _ in range(200):
        peers.step()
    seconds = peers.seconds()
    assert max(seconds) / min(seconds) < 1.1
    if not fixed_s:
        assert peers.balance.weights == pytest.approx((1 / 3, 1 / 3, 1 / 6, 1 / 6))
    assert len(peers.notes) == 1
    assert "33 : 33 : 17 : 17" in peers.notes[0] or fixed_s


@pytest.mark.parametrize("costs", [[0.1, 0.105], [0.001, 0.004]])
def test_equal_or_tiny_steps_are_left_even(monkeypatch, costs):
    peers = Peers(monkeypatch, costs)
    for _ in range(100):
        peers.step()
    assert peers.balance.weights == (0.5, 0.5)
    assert peers.notes == []


def test_one_slow_moment_changes_nothing(monkeypatch):
    peers = Peers(monkeypatch, [0.1, 0.1])
    for step in range(100):
        peers.costs = [0.3, 0.1] if step in range(18, 30) else [0.1, 0.1]
        peers.step()
    assert peers.balance.weights == (0.5, 0.5)
