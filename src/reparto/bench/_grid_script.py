"""A model of the grid as a training script, such as a user would write it.

Strategies share out scripts, so this is what is run for their rows: the same model, weights, data,
batches and number of steps as in a plain row of the grid.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from reparto.bench import _data, _grid, _recipe
from reparto.bench._cells import Cell
from reparto.bench._data import DataSet
from reparto.errors import UsageError

SCRIPT = '''\
"""Trains a perceptron, or a CNN, to foresee the light on a sensor."""

import argparse

import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--hidden", default="", help="widths, as 50-25; a CNN without")
parser.add_argument("--rows", type=int, default=32)
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--rate", type=float, default=1e-3)
parser.add_argument("--data", default="data.npz")
args = parser.parse_args()

device = "cuda" if torch.cuda.is_available() else "cpu"
data = np.load(args.data)
X, Y = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])

torch.manual_seed(0)
if args.hidden:
    sizes = [X.shape[1], *map(int, args.hidden.split("-"))]
    layers = []
    for before, after in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))
else:
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(),
        nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(64 * 23 * 23, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 1),
    )
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.rate)
criterion = nn.MSELoss()

batches = len(X) // args.rows
for step in range(args.steps):
    first = (step % batches) * args.rows
    x, y = X[first : first + args.rows], Y[first : first + args.rows]
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
'''


def write_script(folder: Path) -> Path:
    """Put the script into a folder."""
    path = folder / "grid.py"
    try:
        path.write_text(SCRIPT, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    return path.absolute()


def write_data(folder: Path, source: str) -> tuple[Path, DataSet]:
    """Put the data of the grid, or of the CNN, beside it."""
    data = _data.cnn_data() if source == _grid.CNN else _data.grid_data()
    path = folder / f"{source}.npz"
    assert data.y is not None
    np.savez(path, x=data.x, y=data.y)
    return path.absolute(), data


def arguments(cell: Cell, data: Path, steps: int) -> tuple[str, ...]:
    """What the script is told for a cell."""
    hidden = _grid.hidden_of(cell.model)
    told = ["--rows", str(cell.batch_rows), "--steps", str(steps), "--data", str(data)]
    told += ["--rate", repr(_recipe.rate_of(hidden))]
    return (*told, *(("--hidden", cell.model) if hidden else ()))
