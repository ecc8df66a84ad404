"""Convolutions whose channels lie side by side: the same numbers, elsewhere."""

import contextlib
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.memory import MemoryPlayer
from tests.runtime.accelerate.trained import CPU, accelerated, same
from torch import Tensor, nn

from reparto.runtime.accelerate._channels_last import in_channels_last
from reparto.runtime.accelerate._player import RepeatPlayer


class Net(nn.Module):
    """Convolutions as a layer, in a part of torch's own, and as a function; a view between."""

    def __init__(self, inplace=False):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.part = nn.Sequential(nn.ReLU(inplace), nn.Conv2d(4, 6, 3), nn.MaxPool2d(2))
        self.weight = nn.Parameter(0.1 * torch.randn(5, 6, 3, 3))
        self.out = nn.Linear(20, 2)

    def forward(self, x):
        x = F.conv2d(self.part(self.first(x)), self.weight)
        return x, self.out(x.view(len(x), -1))


def trained(inplace=False):
    torch.manual_seed(5)
    x, y = torch.randn(6, 3, 12, 12), torch.randn(6, 2)
    net = Net(inplace)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept = []
    for _ in range(6):
        optimizer.zero_grad()
        maps, answer = net(x)
        F.mse_loss(answer, y).backward()
        optimizer.step()
        kept.append(maps.detach().view(6, -1).clone())  # the script sees them as it always did
    return kept, [one.detach() for one in net.parameters()]


@pytest.mark.parametrize("kind", [RepeatPlayer, MemoryPlayer])
def test_training_comes_to_the_same(kind, monkeypatch):
    plain, formats, original = trained(), [], F.conv2d

    def seen(given, *args):
        formats.append(given.is_contiguous(memory_format=torch.channels_last))
        return original(given, *args)

    with accelerated() as accelerator:

        def make(tape):
            changed = in_channels_last(tape)
            monkeypatch.setattr(F, "conv2d", seen)
            player = kind(changed, CPU, accelerator.home)
            player.tape = dataclasses.replace(changed, calls=tape.calls)
            return player

        accelerator.engine._make_player = make
        found = trained()
        assert accelerator.engine.num_played >= 3, accelerator.engine.reason
    assert any(formats)
    same(plain, found, within=1e-5)


@contextlib.contextmanager
def changed_tapes():
    """What becomes of each tape that is made while this lasts."""
    found = []
    with accelerated() as accelerator:
        make = accelerator.engine._make_player
        accelerator.engine._make_player = lambda tape: (
            found.append(in_channels_last(tape)) or make(tape)
        )
        yield found


@pytest.mark.parametrize(("inplace", "shown_by"), [(False, Tensor.reshape), (True, Tensor.view)])
def test_views_stay_views_where_something_is_changed_in_place(inplace, shown_by):
    with changed_tapes() as tapes:
        trained(inplace)
    assert {call.func for call in tapes[0].calls} & {Tensor.reshape, Tensor.view} == {shown_by}


def test_what_does_not_convolve_is_left_alone():
    with changed_tapes() as tapes:
        net, x = nn.Linear(3, 2), torch.randn(4, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()
    assert tapes == [None]
