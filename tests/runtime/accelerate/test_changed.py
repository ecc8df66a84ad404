"""Something is changed between two steps: the tape knows, or is left."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.trained import Own, adam, alike, epochs, mlp, plain_step, state
from torch import nn


def changing(change, when=8, model=mlp, num=6):
    """A training in which something is changed before one of its steps."""

    def train():
        net = model()
        optimizer = adam(net)
        step = plain_step(net, optimizer)

        def body(number, x, y):
            if number == when:
                change(net, optimizer)
            step(number, x, y)

        epochs(body, num=num)
        return state(net)

    return train


def decay(net, optimizer):
    optimizer.param_groups[0]["weight_decay"] = 0.5


def freeze(net, optimizer):
    net[0].weight.requires_grad = False


def exchange(net, optimizer):
    net[0].weight.data = torch.full((8, 4), 0.1)


def grow(net, optimizer):
    net.insert(1, nn.Tanh())


def draw_more(net, optimizer):
    net[3].p = 0.9


def listen(net, optimizer):
    net[0].register_forward_hook(lambda layer, given, made: made * 2)


def load(net, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    optimizer.param_groups[0]["lr"] = 0.5


def begin_again(net, optimizer):
    optimizer.state.clear()


def other_state(net, optimizer):
    for values in optimizer.state.values():
        values["exp_avg"] = torch.zeros_like(values["exp_avg"])


def other_rate(net, optimizer):
    optimizer.param_groups[0]["lr"] = 0.3


CHANGES = (
    decay, freeze, exchange, grow, draw_more, listen, load, begin_again, other_state, other_rate,
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_between_steps_counts(change, player):
    engine = alike(changing(change), player)
    assert engine.num_played > 8 - 3  # it is played again afterwards


def test_an_optimizer_takes_more_parameters(player):
    def train():
        net, more = mlp(), nn.Linear(3, 3)
        optimizer = adam(net)

        def body(step, x, y):
            if step == 8:
                optimizer.add_param_group({"params": list(more.parameters()), "lr": 0.02})
            plain_step(lambda x: more(net(x)), optimizer)(step, x, y)

        epochs(body, num=6)
        return state(net, more)

    alike(train, player)


def test_a_training_goes_back_to_its_best(player):
    def train():
        net, kept = Own(norm=True), None
        optimizer = adam(net)
        step = plain_step(net, optimizer)

        def body(number, x, y):
            nonlocal kept
            if number == 6:
                kept = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
            if number == 12:
                net.load_state_dict(kept[0])
                optimizer.load_state_dict(kept[1])
            step(number, x, y)

        epochs(body, num=6)
        return state(net)

    alike(train, player)


def test_train_and_eval_take_turns(player):
    def train():
        net = Own(0.3, norm=True)
        step = plain_step(net, adam(net))

        def body(number, x, y):
            net.train(number % 8 < 4)
            step(number, x, y)

        epochs(body, num=8)
        return state(net)

    alike(train, player)


def test_a_layer_is_left_out_now_and_then(player):
    class Skips(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last, self.calls = nn.Linear(4, 4), nn.Linear(4, 3), 0

        def forward(self, x):
            self.calls += 1
            return self.last(torch.tanh(self.first(x)) if self.calls % 5 else x)

    def train():
        net = Skips()
        epochs(plain_step(net, adam(net)), num=8)
        return state(net)

    alike(train, player)


def test_a_factor_in_the_loss_is_part_of_the_tape(player):
    def train():
        net = mlp()
        optimizer = adam(net)

        def body(step, x, y):
            optimizer.zero_grad()
            (F.mse_loss(net(x), y) * (1 if step < 9 else 2)).backward()
            optimizer.step()

        epochs(body, num=6)
        return state(net)

    alike(train, player)


def test_gradients_are_put_in_by_hand_between_steps(player):
    def train():
        net = mlp()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

        def body(step, x, y):
            F.mse_loss(net(x), y).backward()
            optimizer.step()
            for param in net.parameters():
                param.grad = param.grad * 0.5

        epochs(body)
        return state(net)

    alike(train, player, played=13)


@pytest.mark.parametrize("how", ["list", "shorter list", "in place"])
def test_other_parameters_are_put_into_a_group(how, player):
    """The tape holds a step for those that were there."""

    def train():
        model = mlp()
        layers = [model[0], model[4]]
        optimizer = torch.optim.SGD(layers[0].parameters(), lr=0.01)
        step = plain_step(model, optimizer)

        def body(number, x, y):
            if number == 8:
                others, group = list(layers[1].parameters()), optimizer.param_groups[0]
                if how == "in place":
                    group["params"][:] = others
                else:
                    group["params"] = others if how == "list" else others[:1]
            step(number, x, y)

        epochs(body)
        return state(model)

    alike(train, player)


def test_a_list_of_the_same_parameters_is_put_into_a_group(player):
    def train():
        model = mlp()
        optimizer = adam(model)
        step = plain_step(model, optimizer)

        def body(number, x, y):
            group = optimizer.param_groups[0]
            group["params"] = list(group["params"])
            step(number, x, y)

        epochs(body)
        return state(model)

    alike(train, player)


def test_a_state_is_exchanged_for_its_like(player):
    """Other tensors with the same numbers: the tape writes into those that were there."""

    def train():
        model = mlp()
        optimizer = adam(model)
        step = plain_step(model, optimizer)

        def body(number, x, y):
            if number == 8:
                for found in optimizer.state.values():
                    found["step"] = found["step"].clone()
            step(number, x, y)
            return [found["step"].item() for found in optimizer.state.values()]

        return epochs(body), state(model)

    alike(train, player)
