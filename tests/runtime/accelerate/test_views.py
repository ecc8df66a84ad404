"""Parts of tensors that a step changes: they are cut at once, and the change is put off."""

from __future__ import annotations

import pytest
import torch
from tests.runtime.accelerate.trained import PLAYERS, accelerated, both, same
from torch import nn


def trained(cut):
    """Trains with a memory that is written in each step, and of which a part is read."""
    layer, head = nn.Linear(3, 8).double(), nn.Linear(4, 1).double()
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=1e-2)
    memory, data = torch.zeros(4, 8).double(), torch.randn(6, 4, 3).double()
    losses = []
    for x in (*data, *data):
        optimizer.zero_grad()
        found = layer(x)
        part = cut(memory, found)
        loss = ((head(part) + found.sum(1, keepdim=True) - x.sum(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [param.detach().clone() for param in head.parameters()]


def cut_before(memory, found):
    """The part is a view, and shows what is written afterwards."""
    part = memory[:, :4]
    memory.copy_(found.detach())
    return part


def cut_behind(memory, found):
    """The part is cut when all is written."""
    memory.copy_(found.detach())
    return memory[:, :4]


@pytest.mark.parametrize("player", PLAYERS)
@pytest.mark.parametrize("cut", [cut_before, cut_behind])
def test_a_part_of_a_tensor_shows_what_the_step_wrote_into_it(cut, player):
    plain, fast, _ = both(lambda: trained(cut), player)
    same(plain, fast)


def test_data_that_are_cut_within_a_played_step_are_brought_together_like_all_others():
    layer, data, order = nn.Linear(3, 1), torch.randn(8, 3), torch.randperm(8)
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-2)
    cuts = []
    with accelerated() as accelerator:
        run = accelerator.home.run

        def seen(func, args, kwargs):
            cuts.append(func)
            return run(func, args, kwargs)

        accelerator.home.run = seen
        for number in range(10):
            optimizer.zero_grad()
            part = data[order[number % 4 : number % 4 + 4]]
            layer(part).sum().backward()
            optimizer.step()
        num_played = accelerator.engine.num_played
    assert num_played > 0
    assert sum(func is torch.Tensor.__getitem__ for func in cuts) == 20
