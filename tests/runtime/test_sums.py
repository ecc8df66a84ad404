"""Sums over the batch: what a script may do with a loss before, instead of and after backward."""

import copy
import math

import numpy as np
import torch
import torch.nn.functional as F
from tests.runtime.cases import FEW, case, kept, table

ARITHMETIC = {
    "plus, minus": kept("s:b,4", lambda x: (x.sum() + x.mean(), x.sum() - x.mean(), x.sum() + 0)),
    "plus a number": kept("s:b,4", lambda x: (x.sum() + 3, 3 + x.sum(), 1 - x.mean(), x.mean() - 2.5)),
    "plus a tensor": kept("s:b,4 P:", lambda x, w: (x.sum() + w, w - x.sum(), torch.add(x.mean(), w, alpha=3))),
    "plus a vector": kept("s:b,4 P:4", lambda x, w: (x.sum(0) + w, x.sum() + w, w - x.mean(0))),
    "times": kept("s:b,4 P:", lambda x, w: (x.sum() * 2, 0.5 * x.sum(), x.sum() * w, w.detach() * x.sum(), x.mean() / 3)),
    "times a vector": kept("s:b,4 P:4", lambda x, w: (x.sum(0) * w, x.sum() * w, x.mean(0) / (w * w + 1))),
    "times another sum": case("s:b,4", lambda x: (x.sum() * x.mean(), x.sum() / (x.square().sum() + 1), x.sum(0) * x.mean())),
    "negative": kept("s:b,4", lambda x: (-x.sum(), x.sum().neg(), -x.mean() * 2 / 4)),
    "by zero": case("n:b,4", lambda x: (x.sum() * 0, x.abs().sum() / 0, 0 * x.sum())),
    "roots and powers": case("u:b,4", lambda x: (x.sum().sqrt(), x.mean() ** 2, torch.exp(-x.mean()), x.sum().log(), 1 / x.sum(), 2 ** x.mean())),
    "python's sum": kept("s:b,4", lambda x: sum([x.sum(), x.mean(), (x * x).sum()])),
    "python's sum from a list": case("s:b,4", lambda x: sum([t * w for t, w in zip([x.sum(), x.mean()], [0.2, 0.8], strict=True)]) / 2),
    "stacked": kept("s:b,4", lambda x: (torch.stack([x.sum(), x.mean()]), torch.stack([x.sum(), x.mean()]).sum(), torch.stack([x.sum(0), x.mean(0)], 1))),
    "stacked with others": kept("s:b,4 P:", lambda x, w: (torch.stack([x.sum(), w]).mean(), torch.stack([w, x.sum(), torch.tensor(2.0)]))),
    "weighted stack": case("s:b,4 P:2", lambda x, w: (torch.stack([x.sum(), x.mean()]) * w.softmax(0)).sum()),
    "reduced again": kept("s:b,4,3", lambda x: (x.sum(0).mean(), x.mean(0).sum(1), x.sum(0)[1], x.mean((0, 1)).view(3, 1), x.sum(0).t())),
    "extremes": case("s:b,4", lambda x: (x.sum(0).max(), x.mean(0).norm(), torch.max(x.sum(), x.mean()), x.sum().clamp(min=0), F.relu(x.mean()))),
    "means of counts": case("m:b,4", lambda m: (m.sum() / m.numel(), m.sum().float() / len(m), m.float().mean(), m.sum(0) / len(m))),
    "counts": case("i3:b", lambda y: ((y == 1).sum(), (y == 1).sum() + (y == 2).sum(), (y == 1).sum() > 1, (y == 0).sum() // 2, (y == 1).sum() % 2)),
    "rounded": case("s:b,4", lambda x: (x.sum().long(), x.sum().to(torch.int64) + 1, x.sum().int() * 2, x.sum().to(torch.float32), x.sum().round())),
    "in place": case("s:b,4", lambda x: in_place(x)),
    "in place of what is shared": case("n:b,4", lambda x: shared_in_place(x)),
    "accumulated": case("s:b,4", lambda x: accumulated(x)),
    "accumulated into a tensor": case("n:b,4", lambda x: into_tensor(x)),
    "with the batch": case("s:b,4", lambda x: (x - x.mean(), x / x.sum(0), torch.where(x > x.mean(), x, 0.0), x * x.sum().detach())),
    "with a ghost's rows": case("s:b,4", lambda x: ((x - x.mean(0)) ** 2).sum() / x.size(0)),
    "matrix": case("s:b,4 P:4,2", lambda x, w: (x.mean(0) @ w, x.sum(0) @ x.mean(0), torch.outer(x.sum(0), x.mean(0)))),
    "detached": kept("s:b,4", lambda x: (x.sum().detach(), x.sum().data, x.sum().clone(), x.mean().detach() * 2)),
    "like a sum": case("s:b,4", lambda x: (torch.zeros_like(x.sum()), torch.ones_like(x.mean(0)), x.sum().new_zeros(2))),
    "copied": case("n:b,4", lambda x: (copy.deepcopy(x.sum()), copy.copy(x.mean(0)))),
    "as a type": case("s:b,4 P:2", lambda x, w: (w.type_as(x.sum()), w.to(x.sum()), x.sum().double(), x.sum().cpu())),
}  # fmt: skip


def in_place(x):
    loss = x.sum()
    loss += x.mean()
    loss *= 2
    loss -= 1
    loss /= 3
    loss.add_(x.mean(), alpha=2)
    return loss, loss * 2


def shared_in_place(x):
    loss = x.sum()
    half = loss * 0.5
    again = loss + 0
    loss.mul_(10)
    return loss, half, again


def accumulated(x):
    total = 0
    for part in (x.sum(), x.mean(), x.square().mean()):
        total = total + part
        total += part
    running = 0.0
    for part in (x.sum(), x.mean()):
        running += part.item() * x.size(0)
    return total, running


def into_tensor(x):
    total, rows = torch.zeros(1), torch.zeros(4)
    total += x.sum()
    rows += x.sum(0)
    rows[1] = x.mean()
    rows[2] += x.sum()
    table = torch.zeros(2, 4)
    table[0] = x.mean(0)
    table[1].copy_(x.sum(0))
    return total, rows, table


@table(ARITHMETIC)
def test_arithmetic(case):
    case.run()


READS = {
    "numbers": case("s:b,4", lambda x: (x.sum().item(), float(x.sum()), int(x.sum() * 10), x.mean(0).tolist(), bool(x.sum() > 0))),
    "text": case("n:b,4", lambda x: (f"{x.sum():.6f}", str(x.sum()), repr(x.mean(0)), "%.3f" % x.sum(), f"{x.sum().item():>10.4f}")),
    "text with a gradient": case("s:b,4", lambda x: f"{x.sum():.6f}"),
    "comparisons": case("s:b,4", lambda x: (x.sum() > 0, x.sum() < x.mean(), x.sum() == x.sum(), x.mean() != 0, x.sum() >= 1, 0 <= x.sum())),
    "decisions": case("s:b,4", lambda x: 1 if x.mean() > 0 else (2 if x.sum() < -1 and not x.sum() > 5 else 3)),
    "best of": case("s:b,4", lambda x: (min(x.sum(), x.mean()), max([x.sum(), x.mean()], key=float), sorted([x.sum().item(), 0.3]))),
    "math": case("n:b,4", lambda x: (math.exp(x.mean()), math.isnan(x.sum()), round(float(x.sum()), 3), math.sqrt(x.square().sum()))),
    "numpy": case("n:b,4", lambda x: (np.mean([x.sum().item(), 1.0]), float(np.asarray(x.sum())), x.mean(0).numpy().sum(), float(np.float64(x.sum())))),
    "is finite": case("s:b,4", lambda x: (torch.isnan(x.sum()), x.sum().isfinite(), not torch.isfinite(x.sum()), torch.isnan(x.sum()).any())),
    "shape": case("s:b,4", lambda x: (x.sum().shape, x.sum(0).shape, x.sum().dim(), x.mean(0).size(0), len(x.sum(0)), x.sum().numel())),
    "kind": case("s:b,4", lambda x: (x.sum().dtype, x.sum().requires_grad, x.sum().is_leaf, x.sum().grad_fn is not None, x.sum().device)),
    "iterated": case("n:b,4", lambda x: [value.item() for value in x.sum(0)]),
    "dictionary": case("s:b,4", lambda x: {name: value.item() for name, value in {"a": x.sum(), "b": x.mean()}.items()}),
    "accuracy": case("s:b,3 i3:b", lambda x, y: ((x.argmax(1) == y).sum().item() / len(y), (x.argmax(1) == y).float().mean().item(), x.max(1)[1].eq(y).sum().item())),
    "top two": case("s:b,3 i3:b", lambda x, y: x.topk(2, 1).indices.eq(y[:, None]).any(1).float().mean().item()),
    "confusion": case("s:b,3 i3:b", lambda x, y: [[((x.argmax(1) == i) & (y == j)).sum().item() for i in range(3)] for j in range(3)]),
    "precision": case("m:b m:b", lambda p, y: ((p & y).sum() / p.sum().clamp(min=1), (p & y).sum().float() / (y.sum() + 1e-8), ((p == y).sum() * 100.0 / len(y)).item())),
    "read twice": case("s:b,4", lambda x: (lambda s: (s.item(), s.item(), s, (s * 2).item()))(x.sum())),
}  # fmt: skip


@table(READS)
def test_reading(case):
    case.run()


def test_a_loss_that_was_sent_with_the_gradients_is_read_without_a_message():
    import reparto
    from reparto.runtime._current import current
    from reparto.testing import run_workers

    def function():
        layer = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)
        for _ in range(2):
            loss = layer(reparto.shard(torch.ones(6, 4))).square().mean()
            loss.backward()
            optimizer.step()
            rounds = current().data.rounds
            loss.item()
        return current().data.rounds - rounds

    assert run_workers(2, function) == [0, 0]


UNEVEN = {
    "sum of squares": case("s:b,4", lambda x: x.pow(2).sum().backward(retain_graph=True) or x.sum(), FEW),
}  # fmt: skip


@table(UNEVEN)
def test_backward_inside(case):
    case.run()
