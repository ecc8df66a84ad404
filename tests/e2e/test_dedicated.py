"""Dedicated servers, as users get them: trainings end where those of all-reduce do.

``verify`` looks at gradients, so that sums never stay at their servers. Here nobody looks.
"""

import pytest
import torch

SCRIPT = """\
import sys
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
X, Y = torch.randn(24, 6), torch.randint(0, 4, (24,))
WEIGHTS = torch.tensor([0.1, 1.0, 3.0, 0.5])
results = {}


def model_of():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))


def train(name, loss_of, kind=lambda p: torch.optim.SGD(p, lr=0.3, momentum=0.9), change=None):
    model = model_of()
    optimizer = kind(model.parameters())
    for step in range(9):
        x, y = X[step % 3 * 8 : step % 3 * 8 + 8], Y[step % 3 * 8 : step % 3 * 8 + 8]
        optimizer.zero_grad()
        loss = loss_of(model, x, y)
        loss.backward()
        if change is not None:
            change(step, model, optimizer)
        else:
            optimizer.step()
    results[name] = [p.detach().clone() for p in model.parameters()]


def plain(model, x, y):
    return F.cross_entropy(model(x), y)


def weighted(model, x, y):
    return F.cross_entropy(model(x), y, weight=WEIGHTS)


def masked(model, x, y):
    return F.cross_entropy(model(x), torch.where(y == 0, -100, y), ignore_index=-100)


def read_between(step, model, optimizer):
    float(next(model.parameters()).grad.norm())
    F.cross_entropy(model(X), Y).backward()
    optimizer.step()


def leftover(step, model, optimizer):
    optimizer.step()
    optimizer.zero_grad()
    optimizer.step()


def leftover_clipped(step, model, optimizer):
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    leftover(step, model, optimizer)


def twice(step, model, optimizer):
    optimizer.step()
    optimizer.step()


def cancelled(step, model, optimizer):
    if step % 2:
        model[2].weight.grad = None
    optimizer.step()


def by_hand(step, model, optimizer):
    optimizer.step()
    optimizer.zero_grad()
    for p in model.parameters():
        p.grad = torch.full_like(p, 0.01)
    optimizer.step()


def forgotten(step, model, optimizer):
    optimizer.step()
    if step == 4:
        optimizer.state.clear()


def clamped(step, model, optimizer):
    optimizer.step()
    for p in model.parameters():
        p.data.clamp_(-0.2, 0.2)


def cosine(step, model, optimizer):
    optimizer.step()
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * (1 + np.cos(step / 9))


def logged(step, model, optimizer):
    optimizer.step()
    results.setdefault("logged norms", []).append(float(model[0].weight.grad.norm()))


train("plain", plain)
train("weighted", weighted)
train("masked", masked, lambda p: torch.optim.AdamW(p, lr=0.05))
for change in (read_between, leftover, leftover_clipped, twice, cancelled, by_hand, forgotten,
               clamped, cosine, logged):
    train(change.__name__, weighted, change=change)

# Layers join one after the other.
model = model_of()
optimizer = torch.optim.Adam(model[2].parameters(), lr=0.05)
for step in range(8):
    if step == 3:
        optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.01})
    optimizer.zero_grad()
    plain(model, X, Y).backward()
    optimizer.step()
results["grown"] = [p.detach().clone() for p in model.parameters()]
saved = optimizer.state_dict()["state"]
results["state"] = [one["exp_avg"] for one in saved.values()]
torch.save(results, sys.argv[1])
"""


@pytest.mark.forked
def test_trainings_end_where_those_of_all_reduce_do(cli):
    script = cli.write(SCRIPT)
    for name, options in (
        ("all.pt", ("--workers", 2)),
        ("served.pt", ("--workers", 4, "--strategy", "parameter-server", "--set", "servers=2",
                       "--set", "dedicated=true")),
    ):  # fmt: skip
        done = cli.run("run", "--no-probe", *options, script, name)
        assert done.returncode == 0, done.stderr
    one, two = (torch.load(cli.folder / name) for name in ("all.pt", "served.pt"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(two[name], one[name], rtol=2e-4, atol=2e-5, msg=name)
