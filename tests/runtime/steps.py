"""A small model and batches for tests that train it."""

import torch
from tests.runtime.cases import Case
from torch import nn

import reparto


def same(function, given="N:12,4 I3:12", sizes=((2, 0), (3, 0)), **options):
    """The function shares out its own batches."""
    Case(given, function, list(sizes), options).run()


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def batches(x, y, size=5):
    for at in range(0, len(x), size):
        yield reparto.shard(x[at : at + size]), reparto.shard(y[at : at + size])


def state(*modules):
    return [one.detach().clone() for module in modules for one in module.state_dict().values()]
