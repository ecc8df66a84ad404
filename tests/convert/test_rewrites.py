"""Before and after: what each shape becomes. Only the lines that matter are compared."""

from __future__ import annotations

import textwrap

import pytest

from reparto.convert import Converted

HEAD = """\
import time
import numpy as np
import torch
import torch.nn as nn
from torch import optim
from torch.utils.data import DataLoader, TensorDataset
X = torch.randn(100, 8)
Y = torch.randn(100, 1)
n, b = 100, 10
"""
MODEL = """\
model = nn.Linear(8, 1)
opt = optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.MSELoss()
"""
TRAIN = """\
for x, y in loader:
    loss = loss_fn(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

# name: (whole script below HEAD, lines that must be there after)
CASES: dict[str, tuple[str, str]] = {
    "a loader, a model, an optimizer": (
        "loader = DataLoader(TensorDataset(X, Y), batch_size=10)\n" + MODEL + TRAIN,
        "loader = reparto.prepare(DataLoader(TensorDataset(X, Y), batch_size=10))\n"
        "model = reparto.prepare(nn.Linear(8, 1))\n"
        "opt = reparto.prepare(optim.SGD(model.parameters(), lr=0.1))\n"
        "loss_fn = nn.MSELoss()\n",
    ),
    "a loader in the head of the loop": (
        MODEL + TRAIN.replace("in loader", "in DataLoader(TensorDataset(X, Y), 10)"),
        "for x, y in reparto.prepare(DataLoader(TensorDataset(X, Y), 10)):",
    ),
    "next(iter(loader))": (
        MODEL
        + "while True:\n"
        + "    x, y = next(iter(DataLoader(TensorDataset(X, Y), 10)))\n"
        + "\n".join(TRAIN.splitlines()[1:]),
        "    x, y = next(iter(reparto.prepare(DataLoader(TensorDataset(X, Y), 10))))\n"
        "    loss = loss_fn(model(x), y)",
    ),
    "loaders in a dictionary": (
        MODEL
        + "loaders = {k: DataLoader(TensorDataset(X, Y), 10) for k in ('train', 'val')}\n"
        + TRAIN.replace("in loader", "in loaders['train']"),
        "loaders = {k: reparto.prepare(DataLoader(TensorDataset(X, Y), 10)) "
        "for k in ('train', 'val')}\n",
    ),
    "a model from a function, moved and compiled": (
        "def build():\n    return nn.Sequential(nn.Linear(8, 1))\n"
        "loader = DataLoader(TensorDataset(X, Y), 10)\n"
        + MODEL.replace("nn.Linear(8, 1)", "torch.compile(build().to('cpu'))")
        + TRAIN,
        "model = reparto.prepare(torch.compile(build().to('cpu')))",
    ),
    "several models in one statement": (
        "loader = DataLoader(TensorDataset(X, Y), 10)\n"
        + MODEL.replace(
            "model = nn.Linear(8, 1)", "model, critic = nn.Linear(8, 1), nn.Linear(1, 1)"
        )
        + "critic.train()\n"
        + TRAIN,
        "model, critic = reparto.prepare(nn.Linear(8, 1)), reparto.prepare(nn.Linear(1, 1))",
    ),
    "an optimizer by name": (
        "loader = DataLoader(TensorDataset(X, Y), 10)\n"
        + MODEL.replace("optim.SGD(", "getattr(optim, 'SGD')(")
        + TRAIN,
        "opt = reparto.prepare(getattr(optim, 'SGD')(model.parameters(), lr=0.1))",
    ),
    "full-batch training": (
        MODEL
        + "for epoch in range(9):\n    loss = loss_fn(model(X), Y)\n"
        + "    loss.backward()\n    opt.step()\n",
        "    loss = loss_fn(model(reparto.shard(X)), Y)",
    ),
    "slices by hand": (
        MODEL
        + "for i in range(0, n, b):\n    x, y = X[i:i+b], Y[i:i+b]\n"
        + "\n".join(TRAIN.splitlines()[1:]),
        "    x, y = reparto.shard(X[i:i+b]), reparto.shard(Y[i:i+b])\n"
        "    loss = loss_fn(model(x), y)",
    ),
    "slices by the number of the batch": (
        MODEL
        + "for i in range(n // b):\n    x = X[i * b:(i + 1) * b]\n    y = Y[i * b:(i + 1) * b]\n"
        + "\n".join(TRAIN.splitlines()[1:]),
        "    x = reparto.shard(X[i * b:(i + 1) * b])\n    y = reparto.shard(Y[i * b:(i + 1) * b])",
    ),
    "a permutation is shared out once": (
        MODEL
        + "perm = torch.randperm(n)\nfor i in range(0, n, b):\n    idx = perm[i:i+b]\n"
        + "    x, y = X[idx], Y[idx]\n"
        + "\n".join(TRAIN.splitlines()[1:]),
        "    idx = reparto.shard(perm[i:i+b])\n    x, y = X[idx], Y[idx]\n"
        "    loss = loss_fn(model(x), y)",
    ),
    "a permutation of NumPy is left to the model call": (
        MODEL
        + "perm = np.random.permutation(n)\nfor i in range(0, n, b):\n    idx = perm[i:i+b]\n"
        + "    x, y = X[idx], Y[idx]\n"
        + "\n".join(TRAIN.splitlines()[1:]),
        "    idx = perm[i:i+b]\n    x, y = X[idx], Y[idx]\n"
        "    loss = loss_fn(model(reparto.shard(x)), y)",
    ),
    "NumPy arrays turned to tensors in the loop": (
        MODEL
        + "A = np.zeros((100, 8))\nfor i in range(0, n, b):\n"
        + "    x = torch.from_numpy(A[i:i+b])\n    y = Y[i:i+b]\n"
        + "\n".join(TRAIN.splitlines()[1:]),
        "    x = torch.from_numpy(A[i:i+b])\n    y = reparto.shard(Y[i:i+b])\n"
        "    loss = loss_fn(model(reparto.shard(x)), y)",
    ),
    "the second dimension is sliced": (
        MODEL
        + "for i in range(0, n, b):\n    x, y = X[:, i:i+b], Y\n"
        + "\n".join(TRAIN.splitlines()[1:]),
        "    x, y = reparto.shard(X[:, i:i+b], dim=1), Y",
    ),
    "torch.split, zipped": (
        MODEL + TRAIN.replace("in loader", "in zip(X.split(b), torch.split(Y, b))"),
        "for x, y in zip(reparto.shard(X.split(b)), reparto.shard(torch.split(Y, b))):",
    ),
    "a generator of batches": (
        "def batches():\n    for i in range(0, n, b):\n        yield X[i:i+b], Y[i:i+b]\n"
        + MODEL
        + TRAIN.replace("in loader", "in batches()"),
        "        yield X[i:i+b], Y[i:i+b]\nmodel = reparto.prepare(nn.Linear(8, 1))",
    ),
    "raw parameters, full batch": (
        "w = torch.zeros(8, 1, requires_grad=True)\n"
        "for epoch in range(9):\n    loss = ((X @ w - Y) ** 2).mean()\n    loss.backward()\n"
        "    with torch.no_grad():\n        w -= 0.1 * w.grad\n        w.grad = None\n",
        "X, Y = reparto.shard((X, Y))\nfor epoch in range(9):",
    ),
    "noise that follows the batch": (
        "loader = DataLoader(TensorDataset(X, Y), 10)\n"
        + MODEL
        + TRAIN.replace("(model(x), y)", "(model(x + torch.randn(x.size(0), 8)), y)"),
        "    loss = loss_fn(model(x + reparto.shard(torch.randn(x.size(0), 8))), y)",
    ),
    "noise drawn by NumPy": (
        "loader = DataLoader(TensorDataset(X, Y), 10)\n"
        + MODEL
        + TRAIN.replace(
            "    loss =",
            "    z = torch.Tensor(np.random.normal(0, 1, (x.shape[0], 8)))\n"
            "    loss = model(z).mean() +",
        ),
        "    z = reparto.shard(torch.Tensor(np.random.normal(0, 1, (x.shape[0], 8))))\n"
        "    loss = model(z).mean() + loss_fn(model(x), y)",
    ),
    "a limit of time": (
        "loader = DataLoader(TensorDataset(X, Y), 10)\n"
        + MODEL
        + "start = time.time()\n"
        + TRAIN
        + "    elapsed = time.time() - start\n    if elapsed > 60:\n        break\n"
        + "    if elapsed > 5:\n        print(elapsed)\n",
        "    if reparto.agree(elapsed > 60):\n        break\n    if elapsed > 5:",
    ),
    "a loop by the clock": (
        "loader = DataLoader(TensorDataset(X, Y), 10)\n"
        + MODEL
        + "start = time.time()\nwhile time.time() - start < 60:\n"
        + textwrap.indent(TRAIN, "    "),
        "while reparto.agree(time.time() - start < 60):",
    ),
    "a long line is broken": (
        "a_rather_long_name_for_a_loader = DataLoader("
        "TensorDataset(X, Y), batch_size=10, shuffle=True)\n"
        + MODEL
        + TRAIN.replace("in loader", "in a_rather_long_name_for_a_loader"),
        "a_rather_long_name_for_a_loader = reparto.prepare(\n"
        "    DataLoader(TensorDataset(X, Y), batch_size=10, shuffle=True)\n)\n",
    ),
    "aligned arguments stay aligned, comments stay": (
        "loader = DataLoader(TensorDataset(X, Y),  # all of it\n"
        "                    batch_size=10)\n" + MODEL + TRAIN,
        "loader = reparto.prepare(DataLoader(TensorDataset(X, Y),  # all of it\n"
        "                                    batch_size=10))\n",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_shape_is_rewritten(name: str, convert_text) -> None:
    before, after = CASES[name]
    result = convert_text(HEAD + before)
    assert isinstance(result, Converted), result.program.diagnostics
    converted = result.program.files[0].converted
    compile(converted, "train.py", "exec")
    assert after in converted


def test_generator_is_wrapped_in_the_head_of_the_loop(convert_text) -> None:
    before, _ = CASES["a generator of batches"]
    converted = convert_text(HEAD + before).program.files[0].converted
    assert "for x, y in reparto.shard(batches()):" in converted
    assert "model(x)" in converted


def test_time_slices_are_shared_out_along_the_other_dimension(convert_text) -> None:
    script = """
        import torch
        import torch.nn as nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(4, 4)
            def forward(self, x, h):
                return self.rnn(x, h)
        def get_batch(source, i):
            return source[i:i + 5], source[i + 1:i + 6]
        data = torch.randn(100, 8, 4)
        model = Net()
        opt = torch.optim.SGD(model.parameters(), 0.1)
        hidden = None
        for i in range(0, 90, 5):
            x, y = get_batch(data, i)
            out, hidden = model(x, hidden)
            loss = (out - y).pow(2).mean()
            loss.backward()
            opt.step()
    """
    converted = convert_text(script).program.files[0].converted
    assert "out, hidden = model(reparto.shard(x, dim=1), hidden)" in converted
    assert "self.rnn = nn.LSTM(4, 4)" in converted


def test_nothing_inside_of_a_module_class_is_prepared(convert_text) -> None:
    script = (
        HEAD
        + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
    def forward(self, x):
        return self.layer(x)
loader = DataLoader(TensorDataset(X, Y), 10)
model = Net()
opt = optim.SGD(model.parameters(), lr=0.1)
loss_fn = nn.MSELoss()
"""
        + TRAIN
    )
    converted = convert_text(script).program.files[0].converted
    assert "        self.layer = nn.Linear(8, 1)\n" in converted
    assert "model = reparto.prepare(Net())\n" in converted
    assert "        return self.layer(x)\n" in converted
