"""Processes that are forked off a training, as a loader's workers are, know nothing of it."""

import os

import torch
from tests.runtime.accelerate.trained import accelerated, adam, data, epochs, mlp, plain_step
from torch import nn


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
        epochs(plain_step(model, optimizer))
        x, y = data()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x[:10]), y[:10])
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
