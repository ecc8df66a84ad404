"""Second moments that are levelled over workers, block by block."""

from __future__ import annotations

import pytest
import torch

from reparto.comm import CountingGroup, Meeting, ThreadGroup
from reparto.spec import Cluster, Host, Profile
from reparto.strategies import DiLoCo
from reparto.strategies._base import ParameterSet
from reparto.strategies._levels import BLOCK, Levels, level_bytes
from reparto.testing import run_members


def stepped(moments, kind=torch.optim.Adam):
    """Parameters whose optimizer has these second moments; None for one that has none yet."""
    tensors = [torch.zeros(one.shape, requires_grad=True) for one in moments]
    for tensor in tensors:
        tensor.grad = torch.ones_like(tensor)
    optimizer = kind(tensors)
    optimizer.step()
    name = "exp_avg_sq" if kind is torch.optim.Adam else "square_avg"
    for tensor, moment in zip(tensors, moments, strict=True):
        optimizer.state[tensor][name].copy_(moment)
    parameters = ParameterSet("set", tensors)
    parameters.optimizer_ref = lambda: optimizer
    return parameters, lambda index: optimizer.state[tensors[index]][name], optimizer


def levelled(moments_of_rank, kind=torch.optim.Adam):
    meeting = Meeting(2)

    def work(group):
        moments = moments_of_rank(group.rank())
        parameters, read, _ = stepped(moments, kind)
        levels = Levels(parameters)
        levels.meet(group)
        levels.apply()
        return [read(index).clone() for index in range(len(moments))], group.wire_bytes, levels

    return run_members(2, lambda rank, size: CountingGroup(ThreadGroup(meeting, rank)), work)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.RMSprop])
def test_a_row_that_one_worker_has_seen_is_known_to_both(kind):
    def moments(rank):
        rows = torch.zeros(4, BLOCK)
        rows[rank] = 8.0  # row 0 by worker 0 alone, row 1 by worker 1 alone
        rows[2] = 2.0 + 2 * rank
        return [rows]

    for (found,), _, _ in levelled(moments, kind):
        assert torch.equal(found[0], torch.full((BLOCK,), 4.0))
        assert torch.equal(found[1], torch.full((BLOCK,), 4.0))
        torch.testing.assert_close(found[2], torch.full((BLOCK,), 3.0))
        assert torch.equal(found[3], torch.zeros(BLOCK))


def test_within_a_block_each_worker_keeps_its_proportions():
    def moments(rank):
        return [torch.linspace(1, 2, BLOCK) * (1 + 2 * rank)]

    (first,), _, _ = levelled(moments)[0]
    torch.testing.assert_close(first, torch.linspace(1, 2, BLOCK) * 2)


def test_what_grew_while_the_round_travelled_stays_and_is_not_multiplied():
    """A row that was hardly known when the round was sent, and is met before it lands."""
    meeting = Meeting(2)

    def work(group):
        parameters, read, _ = stepped([torch.full((BLOCK,), 1e-9 if group.rank() == 0 else 1e-4)])
        levels = Levels(parameters)
        levels.meet(group)
        if group.rank() == 0:
            read(0).fill_(1e-4)
        levels.apply()
        return read(0).clone()

    found = run_members(2, lambda rank, size: ThreadGroup(meeting, rank), work)
    torch.testing.assert_close(found[0], torch.full((BLOCK,), 1.5e-4), rtol=1e-3, atol=0)
    torch.testing.assert_close(found[1], torch.full((BLOCK,), 0.5e-4), rtol=1e-3, atol=0)


@pytest.mark.parametrize("shape", [(), (1,), (255,), (257,), (3, 100), (0,)])
def test_blocks_that_are_not_whole(shape):
    found = levelled(lambda rank: [torch.full(shape, 1.0 + 2 * rank), torch.ones(5)])
    for (moment, other), _, _ in found:
        torch.testing.assert_close(moment, torch.full(shape, 2.0))
        torch.testing.assert_close(other, torch.ones(5))


def test_what_is_sent_is_what_was_foretold():
    for _, wire_bytes, levels in levelled(lambda rank: [torch.ones(1000), torch.ones(300)]):
        assert levels.size_bytes == 4 * (4 + 2)
        assert wire_bytes == levels.size_bytes
    assert level_bytes(1000) == 16


def test_an_optimizer_without_second_moments_is_left_alone():
    weights = torch.ones(300, requires_grad=True)
    weights.grad = torch.ones(300)
    optimizer = torch.optim.SGD([weights], 0.1, momentum=0.9)
    optimizer.step()
    parameters = ParameterSet("set", [weights])
    parameters.optimizer_ref = lambda: optimizer
    before = optimizer.state[weights]["momentum_buffer"].clone()
    Levels(parameters).apply()
    assert torch.equal(optimizer.state[weights]["momentum_buffer"], before)


@pytest.mark.parametrize("fragments", [1, 4])
def test_traffic_counts_the_levels(fragments):
    cluster = Cluster(hosts=tuple(Host(name=str(rank)) for rank in range(4)))
    profile = Profile(num_parameters=1 << 20, gradient_bytes=1 << 22)
    kept = DiLoCo.Config(sync_every=8, fragments=fragments).traffic(profile, cluster)
    level = DiLoCo.Config(sync_every=8, fragments=fragments, moments="level")
    *messages, added = level.traffic(profile, cluster)
    assert tuple(messages) == kept
    assert (added.pattern, added.size_bytes, added.every) == ("all-reduce", 1 << 14, 8)


def test_an_optimizer_without_them_is_told_once():
    meeting = Meeting(2)

    def work(group):
        weights = torch.zeros(300, requires_grad=True)
        optimizer = torch.optim.SGD([weights], 0.1)
        parameters = ParameterSet("set", [weights])
        parameters.optimizer_ref = lambda: optimizer
        strategy = DiLoCo.Config(sync_every=1, moments="level").build(group)
        told = []
        strategy.tell = told.append
        strategy.start(parameters)
        for _ in range(3):
            strategy.after_step(parameters)
        return told

    for told in run_members(2, lambda rank, size: ThreadGroup(meeting, rank), work):
        assert told == ["moments=level does nothing here: the optimizer has no second moments"]
