"""Steps that are played: the same training as without."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.trained import (
    Own,
    accelerated,
    adam,
    alike,
    data,
    epochs,
    mlp,
    plain_step,
    state,
)
from torch import nn


@pytest.mark.parametrize("kind", [mlp, Own])
def test_steps_are_played_after_two_that_were_alike(kind, player):
    def train():
        model = kind(drop=0.3, norm=True)
        epochs(plain_step(model, adam(model)))
        return state(model)

    engine = alike(train, player, played=13)  # the first has no gradients to zero
    assert (engine.num_steps, engine.reason) == (16, "")


def test_a_short_last_batch_has_a_tape_of_its_own(player):
    def train():
        model = mlp()
        epochs(plain_step(model, adam(model)), num=6, num_rows=43)
        return state(model)

    engine = alike(train, player)
    assert len(engine.followers) == 2
    assert engine.num_played == 6 * 5 - 3 - 2


def test_gradients_are_accumulated_over_several_batches(player):
    def train():
        model = Own(0.2, norm=True)
        optimizer = adam(model)

        def body(step, x, y):
            (F.mse_loss(model(x), y) / 4).backward()
            if step % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()

        epochs(body, num=8)
        return state(model)

    alike(train, player)


@pytest.mark.parametrize("how", ["before", "after", "in place", "by hand", "module"])
def test_gradients_are_zeroed_in_every_way(how, player):
    def train():
        model = Own()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def body(step, x, y):
            if how == "by hand":
                for param in model.parameters():
                    param.grad = None
            if how in ("before", "in place"):
                optimizer.zero_grad(set_to_none=how == "before")
            if how == "module":
                model.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
            if how == "after":
                optimizer.zero_grad()

        epochs(body)
        return state(model)

    alike(train, player)


def test_gradients_that_are_never_zeroed_add_up(player):
    def train():
        model = Own()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        def body(step, x, y):
            F.mse_loss(model(x), y).backward()
            optimizer.step()

        epochs(body)
        return state(model)

    alike(train, player, played=13)


@pytest.mark.parametrize("reads", ["after", "before", "after a step that was not played"])
def test_gradients_that_the_script_reads_are_those_of_its_step(reads, player):
    def train():
        model = Own(norm=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        norms = []

        def read():
            norms.append([param.grad.norm().item() for param in model.parameters()])

        def body(step, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            if reads == "after a step that was not played" and step == 9:
                loss.item()
            loss.backward()
            if reads == "before" and step % 5 == 4:
                read()
            optimizer.step()
            if reads == "after" and step % 5 == 4:
                read()
            if reads == "after a step that was not played" and step in (10, 11, 12):
                read()

        epochs(body, num=6)
        return norms, state(model)

    alike(train, player)


def test_gradients_that_the_script_keeps_stay_those_of_their_step(player):
    def train():
        model = mlp()
        optimizer, kept = adam(model), []
        step = plain_step(model, optimizer)

        def body(number, x, y):
            step(number, x, y)
            kept.append(model[0].weight.grad)

        epochs(body, num=6)
        return kept, state(model)

    alike(train, player, played=21)


def test_gradients_are_clipped_and_changed(player):
    def train():
        model = Own(0.2)
        optimizer, norms = adam(model), []

        def body(step, x, y):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1))
            for param in model.parameters():
                param.grad.add_(torch.randn_like(param) * 0.01)
            optimizer.step()

        epochs(body)
        return norms, state(model)

    alike(train, player)


def test_a_learning_rate_is_scheduled_from_step_to_step(player):
    def train():
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        step = plain_step(model, optimizer)

        def body(number, x, y):
            step(number, x, y)
            scheduler.step()

        epochs(body)
        return state(model)

    alike(train, player, played=13)


def test_each_loss_that_is_kept_keeps_its_own_value(player):
    def train():
        model = mlp()
        optimizer, losses = adam(model), []

        def body(step, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss)

        epochs(body)
        return losses

    alike(train, player, played=13)


def test_the_loss_of_the_step_before_is_still_its_own(player):
    def train():
        model = mlp()
        optimizer, before = adam(model), None

        def body(step, x, y):
            nonlocal before
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            told = None if before is None else before.item() - loss.item()
            before = loss
            return told

        return epochs(body), state(model)

    alike(train, player)


@pytest.mark.parametrize("at", [0, 1])
def test_a_hidden_state_goes_from_step_to_step(at, player):
    def train():
        model = nn.GRUCell(4, 3)
        optimizer, hidden = adam(model), torch.zeros(10, 3)

        def body(step, x, y):
            nonlocal hidden
            optimizer.zero_grad()
            out = model(x, hidden if at else hidden.detach())
            hidden = out.detach() if at else out
            loss = F.mse_loss(out, y)
            told = loss.item() if step % 5 == 4 else None  # this step is not played
            loss.backward()
            optimizer.step()
            return told

        return epochs(body, num=8), state(model)

    alike(train, player)


@pytest.mark.parametrize("when", ["within", "after"])
def test_a_loss_is_printed_every_few_steps(when, player):
    def train():
        model = Own(0.1, norm=True)
        optimizer, lines = adam(model), []

        def body(step, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            if when == "within" and step % 10 == 9:
                lines.append(f"{loss:.4f}")
            loss.backward()
            optimizer.step()
            if when == "after" and step % 10 == 9:
                lines.append(f"{loss:.4f}")

        epochs(body, num=10)
        return lines, state(model)

    alike(train, player)


def test_an_epoch_that_is_left_in_mid_step_leaves_what_it_computed(player):
    def train():
        model, found = mlp(0.5, norm=True), []
        optimizer = adam(model)
        x, y = data()
        for epoch in range(6):
            model.train()
            for at in range(0, 40, 10):
                optimizer.zero_grad()
                out = model(x[at : at + 10])
                if epoch == 4 and at == 20:
                    break
                F.mse_loss(out, y[at : at + 10]).backward()
                optimizer.step()
            model.eval()
            found.append(out.sum().item())
        return found, state(model)

    alike(train, player)


def test_an_error_in_mid_step_leaves_what_was_computed(player):
    def train():
        model = Own(0.2, norm=True)
        optimizer = adam(model)

        def body(step, x, y):
            try:
                optimizer.zero_grad()
                out = model(x)
                if step % 7 == 6:
                    raise ValueError
                F.mse_loss(out, y).backward()
                optimizer.step()
            except ValueError:
                return out.sum().item() if step % 14 == 6 else None

        return epochs(body, num=8), state(model)

    alike(train, player)


def test_a_module_keeps_a_tensor_only_now_and_then(player):
    class Keeps(Own):
        def __init__(self):
            super().__init__()
            self.calls, self.kept = 0, []

        def forward(self, x):
            hidden = super().forward(x)
            self.calls += 1
            if self.calls % 6 == 0:
                self.kept.append(hidden)
            return hidden * 2

    def train():
        model = Keeps()
        epochs(plain_step(model, adam(model)), num=8)
        return [one.sum() for one in model.kept], state(model)

    engine = alike(train, player)
    assert engine.reason == "the script keeps a tensor that it did not keep before"


def test_evaluation_between_epochs_sees_the_model_of_now(player):
    def train():
        model, found = Own(0.3, norm=True), []
        step = plain_step(model, adam(model))
        x, y = data()

        def body(number, *batch):
            if number % 4 == 0:
                model.eval()
                with torch.no_grad():
                    found.append(F.mse_loss(model(x), y).item())
                model.train()
            step(number, *batch)

        epochs(body, num=6)
        return found, state(model)

    alike(train, player)


def test_models_of_earlier_folds_are_let_go():
    with accelerated() as accelerator:
        for _ in range(9):
            model = Own(0.1)
            epochs(plain_step(model, adam(model)))
        engine = accelerator.engine
        assert engine.num_played > 9 * 10
        assert len(engine.followers) <= 2


def test_each_of_several_models_has_its_tape(player):
    def train():
        one, two = mlp(), mlp()
        steps = [plain_step(one, adam(one)), plain_step(two, adam(two))]
        epochs(lambda *batch: [step(*batch) for step in steps] and None, num=6)
        return state(one, two)

    alike(train, player, played=43)


def test_averages_of_parameters_follow(player):
    def train():
        model = Own(0.1, norm=True)
        average = copy.deepcopy(model)
        step = plain_step(model, adam(model))

        def body(number, x, y):
            step(number, x, y)
            with torch.no_grad():
                for mean, param in zip(average.parameters(), model.parameters(), strict=True):
                    mean.mul_(0.9).add_(param, alpha=0.1)

        epochs(body)
        return state(model, average)

    alike(train, player, played=13)


def test_weights_are_clamped_after_each_step(player):
    def train():
        model = mlp()
        step = plain_step(model, adam(model))

        def body(number, x, y):
            step(number, x, y)
            for param in model.parameters():
                param.data.clamp_(-0.1, 0.1)

        epochs(body)
        return state(model)

    alike(train, player, played=13)


def test_tied_weights_are_updated_once(player):
    def train():
        words, out = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        out.weight = words.weight
        optimizer, index = adam(words), torch.arange(40) % 5
        for at in [*range(0, 40, 10)] * 4:
            optimizer.zero_grad()
            some = index[at : at + 10]
            F.cross_entropy(out(words(some)), some).backward()
            optimizer.step()
        return state(words)

    alike(train, player, played=13)


def test_batches_come_from_numpy_and_from_lists(player):
    def train():
        model = mlp()
        optimizer, x = adam(model), data()[0].numpy()
        buffer = x[:10].copy()
        for at in [*range(0, 40, 10)] * 4:
            buffer[:] = x[at : at + 10]
            optimizer.zero_grad()
            labels = torch.tensor([(at + row) % 3 for row in range(10)])
            F.cross_entropy(model(torch.as_tensor(buffer)), labels).backward()
            optimizer.step()
        return state(model)

    alike(train, player, played=13)


def test_weights_of_a_loss_are_changed_between_steps(player):
    def train():
        model, weights = mlp(), torch.ones(3)
        optimizer = adam(model)

        def body(step, x, y):
            weights[0] = 1 + step // 4
            optimizer.zero_grad()
            (weights * (model(x) - y) ** 2).mean().backward()
            optimizer.step()

        epochs(body)
        return state(model)

    alike(train, player)


def test_a_part_of_a_parameter_is_a_call_like_others(player):
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 6))

        def forward(self, x):
            return x @ self.weight[:, :3]

    def train():
        model = Part()
        epochs(plain_step(model, adam(model)))
        return state(model)

    alike(train, player, played=13)


@pytest.mark.parametrize("name", ["RMSprop", "NAdam", "ASGD", "Rprop", "AdamW", "SGD"])
def test_optimizers_step_as_alone(name):
    def train():
        model = mlp()
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        epochs(plain_step(model, optimizer))
        return state(model)

    alike(train, played=13)
