"""Trains twice, plainly and accelerated, and holds the results against each other."""

from __future__ import annotations

import contextlib
import math

import torch
import torch.nn.functional as F
from tests.runtime.accelerate.memory import MemoryPlayer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from reparto import strategies
from reparto.runtime import _patches
from reparto.runtime._current import current, enter
from reparto.runtime._world import World
from reparto.runtime.accelerate import Accelerator
from reparto.spec import Options

CPU = torch.device("cpu")
#: How a tape is played: its calls once more, or its operations in the same memory.
PLAYERS = ("repeat", "memory")


@contextlib.contextmanager
def accelerated(player="repeat", **options):
    """A worker's world with an accelerator, while this lasts."""
    notes = []
    world = World(options=Options(**options), on_note=notes.append)
    world.strategy = strategies.Single.Config().build(None)
    _patches.install(current, tracking=False)
    enter(world)
    accelerator = Accelerator(CPU, world, capture="no" if player == "no" else "repeat")
    engine = accelerator.engine
    if player == "memory":
        engine._make_player = lambda tape: MemoryPlayer(tape, CPU, accelerator.home)
    world.accelerator = accelerator
    accelerator.notes = notes
    accelerator.install()
    try:
        yield accelerator
    finally:
        accelerator.uninstall()
        enter(None)
        _patches.uninstall()


def data(num_rows=40):
    """Rows to learn: four numbers in, three out."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(num_rows, 4, generator=generator)
    return x, x @ torch.randn(4, 3, generator=generator)


def mlp(drop=0.0, norm=False):
    """Layers of torch's own alone: one call of a tape."""
    layers = [nn.Linear(4, 8), nn.BatchNorm1d(8) if norm else nn.Identity(), nn.ReLU()]
    return nn.Sequential(*layers, nn.Dropout(drop), nn.Linear(8, 3))


class Own(nn.Module):
    """A module of the user's: a tape holds what it does inside."""

    def __init__(self, drop=0.0, norm=False):
        super().__init__()
        self.net = mlp(drop, norm)

    def forward(self, x):
        return torch.tanh(self.net(x))


def adam(model, lr=0.01):
    return torch.optim.Adam(model.parameters(), lr=lr)


def state(*modules):
    return [one.detach().clone() for module in modules for one in module.state_dict().values()]


def epochs(body, num=4, num_rows=40, **how):
    """Hand batches of ten to a function, with a number of the step; returns what it returns."""
    found, step = [], 0
    loader = DataLoader(TensorDataset(*data(num_rows)), 10, shuffle=True, **how)
    for _ in range(num):
        for x, y in loader:
            result = body(step, x, y)
            found += [] if result is None else [result]
            step += 1
    return found


def plain_step(model, optimizer):
    """What most scripts do."""

    def body(step, x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()

    return body


def both(train, player, **options):
    """What a training returns plainly, what it returns accelerated, and the engine."""
    torch.manual_seed(3)
    plain = train()
    torch.manual_seed(3)
    with accelerated(player, **options) as accelerator:
        fast = train()
        accelerator.engine.flush()
    return plain, fast, accelerator.engine


def same(plain, fast, within=1e-9):
    """Two results, however nested, are the same numbers."""
    if isinstance(plain, Tensor):
        assert plain.shape == fast.shape
        torch.testing.assert_close(fast.detach(), plain.detach(), rtol=within, atol=within)
    elif isinstance(plain, (list, tuple)):
        assert len(plain) == len(fast)
        for one, two in zip(plain, fast, strict=True):
            same(one, two, within)
    elif isinstance(plain, dict):
        assert plain.keys() == fast.keys()
        for key in plain:
            same(plain[key], fast[key], within)
    elif isinstance(plain, float):
        assert math.isclose(plain, float(fast), rel_tol=within, abs_tol=within)
    else:
        assert plain == fast


def alike(train, player="repeat", played=None, **options):
    """A training comes to the same accelerated; returns the engine.

    Args:
        train: Trains, and returns what it came to.
        player: How tapes are played.
        played: How many steps were played; None for at least one.
    """
    plain, fast, engine = both(train, player, **options)
    same(plain, fast)
    if played is None:
        assert engine.num_played > 0, engine.reason
    else:
        assert engine.num_played == played, (engine.num_played, engine.num_steps, engine.reason)
    return engine
