"""Parts of tensors that a step changes: they are cut at once, and the change is put off."""

from __future__ import annotations

import pytest
import torch
from tests.runtime.accelerate.trained import PLAYERS, both, same
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
