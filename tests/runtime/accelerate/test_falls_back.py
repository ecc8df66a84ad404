"""What no tape can hold: the script runs as it always did, and is told why."""

import copy
import threading

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.trained import (
    Own,
    adam,
    alike,
    data,
    epochs,
    mlp,
    plain_step,
    state,
)
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import reparto


def falls_back(train, why, player="memory"):
    engine = alike(train, player, played=0)
    assert why in engine.reason


def trained(model, optimizer=None, num=4):
    epochs(plain_step(model, optimizer or adam(model)), num=num)
    return state(model)


def gan(*, every):
    """A discriminator in each step, a generator in some, on what the discriminator was shown."""
    maker = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4))
    judge = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    makers, judges = adam(maker), adam(judge)

    def body(step, x, y):
        fake = maker(torch.randn(len(x), 2))
        judges.zero_grad()
        (judge(fake.detach()).mean() - judge(x).mean()).backward()
        judges.step()
        if step % every == every - 1:
            makers.zero_grad()
            (-judge(fake).mean()).backward()
            makers.step()

    epochs(body, num=6)
    return state(maker, judge)


@pytest.mark.parametrize("every", [1, 5])
def test_a_generator_goes_back_through_an_earlier_step(every, player):
    falls_back(lambda: gan(every=every), "for a backward pass after the step", player)


def test_a_loss_is_gone_back_through_after_a_step(player):
    def train():
        one, two = mlp(), mlp()
        first, second = adam(one), adam(two)

        def body(step, x, y):
            first.zero_grad()
            loss, other = F.mse_loss(one(x), y), F.mse_loss(two(x), y)
            loss.backward()
            first.step()
            second.zero_grad()
            other.backward()
            second.step()

        epochs(body)
        return state(one, two)

    falls_back(train, "for a backward pass after the step", player)


class Square(torch.autograd.Function):
    """Whose gradient is not the one that torch would compute."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 3 * ctx.saved_tensors[0] * gradient


class Besides(nn.Module):
    """A way of the script's own beside one of torch's: a gradient that is lost would not show."""

    def __init__(self, way):
        super().__init__()
        self.first, self.last, self.way = nn.Linear(4, 8), nn.Linear(8, 3), way
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3))

    def forward(self, x):
        hidden = self.first(x)
        return self.last(hidden + self.way(self.inner(hidden)))


def test_a_function_of_the_users_own(player):
    falls_back(lambda: trained(Besides(Square.apply)), "a function of the script's own", player)


def test_a_checkpoint_that_goes_back_by_itself(player):
    def way(x):
        return checkpoint(lambda x: x * torch.sigmoid(x), x, use_reentrant=True)

    falls_back(lambda: trained(Besides(way)), "a function of the script's own", player)


def test_a_checkpoint_that_is_made_of_calls_is_played(player):
    def way(x):
        return checkpoint(nn.functional.silu, x, use_reentrant=False)

    alike(lambda: trained(Besides(way)), player, played=13)


def test_compiled_code_gets_what_was_computed():
    @torch.jit.script
    def weight(x):
        return (x * x).sum()

    def train():
        model = mlp()
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            out = model(x)
            (F.mse_loss(out, y) * (1 + weight(out.detach()) / 100)).backward()
            optimizer.step()

        epochs(body)
        return state(model)

    falls_back(train, "calls compiled code")


def test_other_parameters_in_the_place_of_a_layers_own(player):
    """As meta-learning does it: one step ahead, and back through it."""

    def train():
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            own = dict(model.named_parameters())
            loss = F.mse_loss(torch.func.functional_call(model, own, (x,)), y)
            grads = torch.autograd.grad(loss, list(own.values()), create_graph=True)
            ahead = {name: p - 0.1 * g for (name, p), g in zip(own.items(), grads, strict=True)}
            F.mse_loss(torch.func.functional_call(model, ahead, (x,)), y).backward()
            optimizer.step()

        epochs(body)
        return state(model)

    alike(train, player)


def test_parameters_of_another_model_are_seen(player):
    def train():
        model, teacher = mlp(), mlp()
        optimizer, other = adam(model), dict(teacher.named_parameters())

        def body(step, x, y):
            with torch.no_grad():
                aim = torch.func.functional_call(model, other, (x,))
            optimizer.zero_grad()
            F.mse_loss(model(x), y + 0.1 * aim).backward()
            optimizer.step()

        epochs(body)
        return state(model)

    alike(train, player)


def test_transforms_of_functions(player):
    def train():
        model = mlp()
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            slope = torch.func.vmap(torch.func.grad(lambda row: model(row).sum()))(x)
            (F.mse_loss(model(x), y) + slope.pow(2).mean()).backward()
            optimizer.step()

        epochs(body)
        return state(model)

    falls_back(train, "a tensor of a kind of its own", player)


class Twice(torch.Tensor):
    """Of which layers make twice as much."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if func is F.linear else result


@pytest.mark.parametrize("kind", [mlp, Own])
def test_tensors_of_a_kind_of_their_own(kind):
    def train():
        model = kind()
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            out = model(x.as_subclass(Twice))
            F.mse_loss(out.as_subclass(torch.Tensor), y).backward()
            optimizer.step()
            return type(out).__name__

        return epochs(body), state(model)

    falls_back(train, "a tensor of a kind of its own")


@pytest.mark.parametrize("turn", ["before", "after"])
def test_layers_that_are_switched_within_a_step(turn, player):
    def train():
        model = mlp(0.5, norm=True)
        optimizer = adam(model)

        def body(step, x, y):
            if turn == "before":
                model.eval()
                with torch.no_grad():
                    y = y + 0.1 * model(x)
            model.train()
            optimizer.zero_grad()
            out = model(x)
            if turn == "after":
                model.eval()
            F.mse_loss(out, y).backward()
            optimizer.step()

        epochs(body)
        return state(model)

    falls_back(train, "changes a layer within the step", player)


CHANGES = {
    "+=": lambda x: x.__iadd__(0.01),
    "a view": lambda x: x.view(-1).mul_(0.99),
    "data": lambda x: x.data.mul_(0.99),
    "out": lambda x: torch.add(x, 0.01, out=x),
    "a layer": nn.ReLU(inplace=True),
    "an item": lambda x: x.__setitem__(0, 1.0),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_batch_that_is_changed_in_place_is_changed(how, player):
    def train():
        model, (x, y) = mlp(), data()
        optimizer = adam(model)
        for at in [*range(0, 40, 10)] * 4:
            some = x[at : at + 10]
            optimizer.zero_grad()
            CHANGES[how](some)
            F.mse_loss(model(some), y[at : at + 10]).backward()
            optimizer.step()
        return x, state(model)

    falls_back(train, "changes its batch in place", player)


def test_a_number_within_the_step(player):
    def train():
        model = Own(0.1, norm=True)
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            told = loss.item()
            (loss * (1 + told)).backward()
            optimizer.step()
            return told

        return epochs(body), state(model)

    falls_back(train, "asks for a number within the step: item (test_falls_back.py:", player)


def test_an_array_within_the_step(player):
    def train():
        model = mlp()
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            out = model(x)
            weight = torch.from_numpy(np.abs(out.detach().numpy()) + 1)
            (weight * (out - y) ** 2).mean().backward()
            optimizer.step()

        epochs(body)
        return state(model)

    falls_back(train, "asks for a number within the step: numpy", player)


def hooked(when, kind):
    """Gradients are clamped by a hook that also writes them down."""
    model, seen = mlp(), []

    def clamp(gradient):
        seen.append(gradient.norm().clone())
        return gradient.clamp(-0.01, 0.01)

    def arrived(param):
        seen.append(param.grad.norm().clone())

    step = plain_step(model, adam(model))

    def body(number, x, y):
        if number == when:
            for param in model.parameters():
                if kind == "gradient":
                    param.register_hook(clamp)
                else:
                    param.register_post_accumulate_grad_hook(arrived)
        step(number, x, y)

    epochs(body)
    return seen, state(model)


@pytest.mark.parametrize("when", [0, 9])
@pytest.mark.parametrize("kind", ["gradient", "arrival"])
def test_hooks_on_gradients_are_called_in_every_step(kind, when, player):
    engine = alike(lambda: hooked(when, kind), player, played=0 if not when else None)
    assert engine.num_played <= max(0, when - 3)
    assert "a hook hangs on the gradient" in engine.reason


def test_hooks_on_layers_are_called_in_every_step(player):
    def train():
        model, seen = mlp(), []
        model[0].register_full_backward_hook(lambda *given: seen.append(given[2][0].sum().clone()))
        model[0].register_forward_hook(lambda layer, given, made: made * 2)
        return trained(model), seen

    falls_back(train, "a function of the script's own", player)


def test_a_hook_on_a_tensor(player):
    def train():
        model = Own()
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            out = model(x)
            out.register_hook(lambda gradient: gradient * 2)
            F.mse_loss(out, y).backward()
            optimizer.step()

        epochs(body)
        return state(model)

    falls_back(train, "hangs a hook on a tensor (test_falls_back.py:", player)


@pytest.mark.parametrize("kind", ["LBFGS", "Adam"])
def test_optimizers_that_are_given_a_closure(kind, player):
    def train():
        model = mlp()
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)

        def body(step, x, y):
            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            return optimizer.step(closure).item()

        return epochs(body), state(model)

    falls_back(train, "the optimizer is given a closure", player)


def test_settings_that_change_in_every_step(player):
    def train():
        model = mlp()
        optimizer = adam(model)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=16)
        step = plain_step(model, optimizer)

        def body(number, x, y):
            step(number, x, y)
            scheduler.step()

        epochs(body)
        return state(model)

    falls_back(train, "settings of the optimizer were changed", player)


def test_a_learning_rate_that_is_a_tensor(player):
    def train():
        model, rate = mlp(), torch.tensor(0.01)
        step = plain_step(model, adam(model, rate))

        def body(number, x, y):
            if number == 8:
                rate.fill_(0.2)
            step(number, x, y)

        epochs(body)
        return state(model)

    falls_back(train, "the learning rate is a tensor", player)


def test_loss_scaling_skips_what_it_would_skip_alone(player):
    def train():
        model = mlp().float()
        optimizer, scaler = adam(model), torch.amp.GradScaler("cpu", init_scale=2.0**120)

        def body(step, x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.mse_loss(model(x.float()), y.float())
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        epochs(body)
        return [one.double().round(decimals=5) for one in state(model)], scaler.get_scale()

    falls_back(train, "asks for a number within the step: item", player)


def test_another_thread_reads_a_loss_in_mid_step(player):
    def train():
        model, read = mlp(), []
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            reader = threading.Thread(target=lambda: read.append(loss.item()))
            reader.start()
            reader.join()
            loss.backward()
            optimizer.step()

        epochs(body)
        return read, state(model)

    falls_back(train, "handed to another thread", player)


def test_two_threads_train_side_by_side(player):
    def train():
        models = [mlp(), mlp()]

        def one(model):
            x, y = data()
            optimizer = adam(model)
            for at in [*range(0, 40, 10)] * 4:
                optimizer.zero_grad()
                F.mse_loss(model(x[at : at + 10]), y[at : at + 10]).backward()
                optimizer.step()

        other = threading.Thread(target=one, args=(models[1],))
        other.start()
        one(models[0])
        other.join()
        return state(*models)

    alike(train, player, played=13)


def test_a_mode_of_the_users_sees_every_call(player):
    class Counts(TorchFunctionMode):
        num_calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            Counts.num_calls += 1
            return func(*args, **(kwargs or {}))

    def train():
        model, counts = mlp(), []
        optimizer = adam(model)

        def body(step, x, y):
            Counts.num_calls = 0
            optimizer.zero_grad()
            with Counts():
                out = model(x)
            F.mse_loss(out, y).backward()
            optimizer.step()
            counts.append(Counts.num_calls)

        epochs(body)
        return counts, state(model)

    alike(train, player)


def test_a_number_that_is_read_and_then_changed_in_place(player):
    def train():
        model, total = mlp(), 0.0
        optimizer = adam(model)

        def body(step, x, y):
            nonlocal total
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            total += reparto.later(loss, total)
            loss /= 2
            loss.backward()
            optimizer.step()

        epochs(body)
        return float(total), state(model)

    falls_back(train, "read and changed in place", player)


def test_pickled_results_are_computed_results(tmp_path, player):
    def train():
        model, found = Own(0.1, norm=True), []
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            out = model(x)
            if step % 4 == 2:
                torch.save((out.detach(), copy.deepcopy(model.state_dict())), tmp_path / "all.pt")
                found.append(torch.load(tmp_path / "all.pt"))
            F.mse_loss(out, y).backward()
            optimizer.step()

        epochs(body, num=6)
        return found, state(model)

    alike(train, player)


@pytest.mark.parametrize("first", [True, False])
def test_rows_that_the_step_writes_are_read_as_written(first, player):
    def train():
        model, (x, y) = mlp(), data()
        optimizer, memory = adam(model), torch.zeros(40, 3)
        rows, others = torch.arange(10), torch.arange(5, 15)
        for _ in range(12):
            optimizer.zero_grad()
            out = model(x[rows])
            near = memory[others] if first else None
            memory[rows] = out.detach()
            near = near if first else memory[others]
            (F.mse_loss(out, y[rows]) + (out - near).pow(2).mean()).backward()
            optimizer.step()
        return memory, state(model)

    alike(train, player, played=9)
