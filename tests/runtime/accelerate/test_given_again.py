"""What a step gives to the script is given again when the script has let go of it, and only then."""

import weakref

import pytest
import torch
import torch.nn.functional as F
from tests.runtime.accelerate.trained import accelerated, adam, alike, epochs, mlp, state


def training(use):
    """Trains, and hands each loss to a function behind its step; returns what that returned."""

    def train():
        model = mlp()
        optimizer = adam(model)

        def body(step, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return use(step, loss)

        return epochs(body, num=5), state(model)

    return train


def keeping(length):
    """Keeps that many losses, and tells all of them."""

    def make():
        kept = []

        def use(step, loss):
            kept.append(loss)
            del kept[:-length]
            return [one.item() for one in kept]

        return use

    return make


def tagging():
    def use(step, loss):
        found = getattr(loss, "tag", None)
        loss.tag = step
        return [found, loss.tag]

    return use


def knowing():
    """A table of tensors that forgets those that are gone."""
    table = weakref.WeakValueDictionary()

    def use(step, loss):
        found = [key for key in range(step) if table.get(key) is loss]
        table[step] = loss
        return found

    return use


def changing():
    held = []

    def use(step, loss):
        with torch.no_grad():
            loss.mul_(2)
        held[:] = [*held[-2:], loss]
        return [one.item() for one in held]

    return use


def seeing_each_second():
    held = []

    def use(step, loss):
        if step % 2:
            held.append(loss)
        return [one.item() for one in held[-3:]]

    return use


@pytest.mark.parametrize(
    "make",
    [
        keeping(1),
        keeping(2),
        keeping(3),
        keeping(9),
        tagging,
        knowing,
        changing,
        seeing_each_second,
    ],
    ids="one two three nine tags table changed second".split(),
)
def test_the_script_sees_what_it_would_see_alone(make, player):
    def train():
        return training(make())()

    alike(train, player)


def test_two_tensors_take_turns_where_the_last_is_held():
    seen = []

    def use(step, loss):
        seen.append(id(loss))

    with accelerated("memory") as accelerator:
        training(use)()
        assert accelerator.engine.num_played > 10
    assert len(set(seen[-10:])) == 2
