"""Processes that are forked off a training, as a loader's workers are, know nothing of it."""

import os

import torch
from tests.runtime.accelerate.trained import accelerated, adam, data, epochs, mlp, plain_step
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def forked(body):
    """What a child process returns."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, repr(body()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as told:
        text = told.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def test_a_child_finds_computed_what_the_parent_had_put_off():
    with accelerated() as accelerator:
        engine, model = accelerator.engine, mlp()
        optimizer = adam(model)
        x, y = data()

        def loss_of_step():
            optimizer.zero_grad()
            return nn.functional.mse_loss(model(x), y)

        for _ in range(4):
            loss_of_step().backward()
            optimizer.step()
        loss = loss_of_step()
        assert engine.has_put_off
        told = forked(lambda: (engine.is_here, loss.item()))
        assert told == str((False, loss.item()))
        assert loss.item() > 0


def test_the_parent_goes_on():
    with accelerated() as accelerator:
        engine, model = accelerator.engine, mlp()
        step = plain_step(model, adam(model))
        epochs(step)
        assert forked(lambda: (torch.ones(2) + 1).tolist()) == "[2.0, 2.0]"
        before = engine.num_played
        epochs(step)
        assert engine.num_played > before


def test_a_child_trains_as_torch_does():
    with accelerated() as accelerator:
        engine, model = accelerator.engine, mlp()
        step = plain_step(model, adam(model))
        epochs(step)
        plain = nn.Linear(4, 3)
        plain.load_state_dict({"weight": torch.ones(3, 4), "bias": torch.zeros(3)})

        def child():
            epochs(plain_step(plain, adam(plain)), num=2)
            return engine.num_steps, engine.num_played, plain.bias.abs().sum().item() > 0

        steps, played = engine.num_steps, engine.num_played
        assert forked(child) == str((steps, played, True))


def test_a_childs_batches_are_made_by_torchs_own_loader():
    """On a GPU, a child must not touch it."""
    with accelerated() as accelerator:
        loader = DataLoader(TensorDataset(torch.arange(4.0)), 2)
        kind = type(iter(loader)).__name__
        assert kind == "Resident"
        assert forked(lambda: type(iter(loader)).__name__) == repr("_SingleProcessDataLoaderIter")

        def child():
            accelerator.device = torch.device("meta")  # as a GPU would be: another device
            return [rows.tolist() for (rows,) in loader]

        assert forked(child) == "[[0.0, 1.0], [2.0, 3.0]]"
