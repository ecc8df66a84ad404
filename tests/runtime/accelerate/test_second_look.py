"""What is played for a while is compiled, if that comes to the same and is faster."""

import contextlib
import gc
import shutil
import types
import weakref

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.trained import CPU, accelerated, same
from torch import nn
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils.data import DataLoader, TensorDataset

from reparto.errors import UsageError
from reparto.runtime.accelerate import _second_look
from reparto.runtime.accelerate._compiled import Compiled, compiled
from reparto.runtime.accelerate._player import RepeatPlayer
from reparto.runtime.accelerate._second_look import SecondLook

#: torch's compiler writes C++ for a CPU.
pytestmark = [
    pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++"),
    pytest.mark.xdist_group("compiler"),  # to import it takes seconds: once
]


class Net(nn.Module):
    """Layers, a part of torch's own, a parameter that is used twice, and buffers that count."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.part = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(6), nn.Dropout(0.3), nn.Linear(6, 6))
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        x = self.part(self.first(x)) * self.scale
        return F.linear(x.tanh(), self.first.weight.t()) * self.scale.sum()


def trained(num_steps=20):
    """Losses are kept as tensors, too: the script may read them much later."""
    torch.manual_seed(5)
    loader = DataLoader(TensorDataset(torch.randn(48, 4)), batch_size=12, shuffle=True)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    losses, kept = [], []
    for _ in range(num_steps // 4):
        for (x,) in loader:
            x = x.to("cpu")  # which is the GPU, for a script that runs on one
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), x)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            kept.append(loss)
    return losses, kept, [one.detach() for one in (*net.parameters(), *net.buffers())]


@contextlib.contextmanager
def looking_again(gain, after_steps=6):
    """Play tapes by their calls; what is compiled is so many times as fast."""
    with accelerated(losses=True) as accelerator:  # so that it is told of each step
        steps = iter(range(1000))

        def timed(player):
            player.rest()
            player.launch()  # draws random numbers, and changes all that a step changes
            player.rest()
            player.rewind()
            is_compiled = any(isinstance(call.func, Compiled) for call in player.played.calls)
            return 1.0 / gain if is_compiled else 1.0

        accelerator.second_look = SecondLook(
            lambda tape: RepeatPlayer(tape, CPU, accelerator.home),
            timed,
            accelerator.home,
            is_relaxed=False,
            clock=lambda: next(steps) * _second_look.AFTER_S / after_steps,
        )
        yield accelerator


def calls_of(accelerator):
    (follower,) = accelerator.engine.followers
    return [call.func for call in follower.player.played.calls]


def test_what_is_faster_is_played_from_then_on_and_comes_to_the_same():
    plain = trained()
    with looking_again(gain=1.3) as accelerator:
        found = trained()
        assert accelerator.engine.num_played >= 15, accelerator.engine.reason
        assert sum(isinstance(func, Compiled) for func in calls_of(accelerator)) == 1
        (told,) = accelerator.second_look.told()
    assert told.startswith("compiled, 1.30 times as fast, in ")
    same(plain, found, within=1e-5)


def test_the_graph_that_was_played_so_far_is_gone_with_its_memory():
    graphs = []
    with looking_again(gain=1.3) as accelerator:
        make = accelerator.engine._make_player

        def remembered(tape):
            player = make(tape)
            graphs.append(weakref.ref(player))
            return player

        accelerator.engine._make_player = remembered
        exchange = accelerator.engine.exchange

        def exchanged(*given):
            gc.disable()  # a GPU that is full asks for no collection
            return exchange(*given)

        accelerator.engine.exchange = exchanged
        try:
            trained()
            assert [ref() for ref in graphs] == [None]
        finally:
            gc.enable()


def test_a_tape_that_is_seldom_played_is_not_worth_the_time_of_others(monkeypatch):
    class Follower:
        tape = types.SimpleNamespace(calls=[])

        def __init__(self, player):
            self.player = player

        def let_go(self):
            pass

    looked_at, clock = [], iter(range(1000))
    home = types.SimpleNamespace(device=torch.device("cpu"))
    given = {"is_relaxed": False, "clock": lambda: float(next(clock))}
    look = SecondLook(None, None, home, **given)
    monkeypatch.setattr(
        look, "_compiled", lambda player: (None, looked_at.append(player) or "left")
    )
    often, last = Follower("full batches"), Follower("the last batch of a pass")
    for step in range(300):
        look.now(types.SimpleNamespace(launched=last if step % 10 == 9 else often))
    assert looked_at == ["full batches"]
    for step in range(400):
        look.now(types.SimpleNamespace(launched=last if step % 10 == 9 else None))
    assert looked_at == ["full batches", "the last batch of a pass"]


@pytest.mark.parametrize("asked", ["1m", "", "-1", "nan"])
def test_a_time_that_is_none_is_told(monkeypatch, asked):
    monkeypatch.setenv("REPARTO_COMPILE_AFTER", asked)
    home = types.SimpleNamespace(device=torch.device("cpu"))
    with pytest.raises(UsageError, match=f"REPARTO_COMPILE_AFTER={asked} is no time"):
        SecondLook(None, None, home, is_relaxed=False)


def test_what_is_compiled_is_sent_where_the_calls_were_sent(monkeypatch):
    """A script's ``to("cpu")`` is sent to the GPU by whoever makes the calls."""
    with looking_again(gain=1.3) as accelerator:
        original, sent = accelerator.home.run, []

        def run(func, args, kwargs):
            if func is torch.Tensor.to and isinstance(args[0], FunctionalTensor):
                sent.append(args[1])
            return original(func, args, kwargs)

        monkeypatch.setattr(accelerator.home, "run", run)
        trained()
    assert "cpu" in sent


def test_what_is_not_faster_is_left():
    plain = trained()
    with looking_again(gain=1.02) as accelerator:
        found = trained()
        assert not any(isinstance(func, Compiled) for func in calls_of(accelerator))
        (told,) = accelerator.second_look.told()
    assert told.startswith("compiled, 1.02 times as fast: left, in ")
    same(plain, found, within=1e-5)


def scaled(outputs, part):
    return tuple(1.01 * one for one in outputs)


def with_other_buffers(outputs, part):
    for one in part.tensors:
        if one.dtype.is_floating_point and not one.requires_grad:
            one.mul_(1.01)
    return outputs


def with_another_loss_to_tell(outputs, part):
    return tuple(one + 0.01 for one in outputs)  # whose gradients are the same


@pytest.mark.parametrize(
    ("change", "told_of"),
    [
        (scaled, "gradients were 0.01"),
        (with_other_buffers, "buffers were 0.01"),
        (with_another_loss_to_tell, "results were 0.0"),
    ],
)
def test_what_comes_to_other_numbers_is_left(monkeypatch, change, told_of):
    plain, original = trained(), Compiled.__call__
    monkeypatch.setattr(
        Compiled, "__call__", lambda part, *given: change(original(part, *given), part)
    )
    with looking_again(gain=2) as accelerator:
        found = trained()
        assert not any(isinstance(func, Compiled) for func in calls_of(accelerator))
        (told,) = accelerator.second_look.told()
    assert told.startswith(f"compiled, {told_of}")
    assert "of their norm apart: left" in told
    same(plain, found, within=1e-5)


def test_a_compiler_that_fails_is_told_and_the_training_goes_on(monkeypatch):
    plain = trained()

    def fails(*given):
        raise RuntimeError("no such thing as a compiler\nfor this machine")

    monkeypatch.setattr(Compiled, "__call__", fails)
    with looking_again(gain=2) as accelerator:
        found = trained()
        (told,) = accelerator.second_look.told()
    assert told.startswith("could not be compiled (RuntimeError: no such thing as a compiler), in")
    same(plain, found, within=1e-5)


@contextlib.contextmanager
def compiled_tapes():
    """What becomes of each tape that is made while this lasts."""
    tapes = []
    with accelerated() as accelerator:
        make = accelerator.engine._make_player
        accelerator.engine._make_player = lambda tape: (
            tapes.append(compiled(tape, "cpu", accelerator.home.run)) or make(tape)
        )
        yield tapes


def test_gradients_that_go_back_twice_are_not_compiled():
    with compiled_tapes() as tapes:
        net, x = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)), torch.randn(5, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            (net(x).square().mean() * 2).backward()
            (net(x).mean() * 3).backward()
            optimizer.step()
    assert tapes == [None]


def test_gradients_that_are_asked_for_by_hand_are_not_compiled():
    with compiled_tapes() as tapes:
        net, x = nn.Linear(4, 4), torch.randn(8, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(5):
            grads = torch.autograd.grad(F.mse_loss(net(x).tanh(), x), list(net.parameters()))
            for parameter, grad in zip(net.parameters(), grads, strict=True):
                parameter.grad = grad
            optimizer.step()
    assert tapes == [None]


class Codes(nn.Module):
    """Uses a buffer, and then changes it: gradients are those of what it was before."""

    def __init__(self, how):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.how = how
        self.register_buffer("codes", torch.ones(4))

    def forward(self, x):
        given = self.first(x)
        made = given * self.codes.clone()
        with torch.no_grad():
            if self.how == "in place":
                self.codes.copy_(given.sum(0))
            elif self.how == "a part":
                self.codes[:2] = given.sum(0)[:2]
            elif self.how == "by an operator":
                self.codes += given.sum(0)
            else:
                torch.add(self.codes, given.sum(0), out=self.codes)
        return made


@pytest.mark.parametrize("how", ["in place", "a part", "by an operator", "out"])
def test_what_changes_a_buffer_that_gradients_depend_on_is_not_compiled(how):
    with compiled_tapes() as tapes:
        net, x = Codes(how), torch.randn(5, 4)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            F.mse_loss(net(x), x).backward()
            optimizer.step()
    assert tapes == [None]
