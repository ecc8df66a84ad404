"""System C's grid as one writes it: no GPU, no reparto. Trains each model for some seconds.

python grid.py --models all --seconds 1
reparto run --accelerate grid.py --models all --seconds 1
"""

import argparse
import json
import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DEVICE = "cpu"


def widths(kind, k):
    return [w * 2**k for w in {1: [50], 2: [50, 25], 3: [50, 25, 13]}[kind]]


def names():
    grid = ["-".join(map(str, widths(depth, k))) for depth in (1, 2, 3) for k in range(10)]
    return [*grid, "cnn"]


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * 23 * 23, 128)
        self.fc2 = nn.Linear(128, 1)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.dropout(x, 0.25, self.training)
        x = F.relu(self.fc1(x.flatten(1)))
        x = F.dropout(x, 0.5, self.training)
        return self.fc2(x)


class Perceptron(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        sizes = [50, *hidden]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))
        self.out = nn.Linear(sizes[-1], 1)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)


def model_of(name):
    return Cnn() if name == "cnn" else Perceptron([int(w) for w in name.split("-")])


def data_of(name, samples):
    generator = torch.Generator().manual_seed(1)
    if name == "cnn":
        x = torch.rand(samples, 1, 50, 50, generator=generator)
        return x, x[:, 0, 20:30, 20:30].mean(dim=(1, 2))[:, None]
    x = torch.rand(samples, 50, generator=generator)
    return x, (x[:, :1] * x[:, 1:2] + x[:, 2:3]) / 2


def samples_of(name):
    return 10_240 if name == "cnn" else 50_000


def batch_of(name):
    return 512 if name == "cnn" else 1000


def train(name, seconds, samples=None, passes=4):
    torch.manual_seed(0)
    x, y = data_of(name, samples or samples_of(name))
    loader = DataLoader(TensorDataset(x, y), batch_size=batch_of(name), shuffle=True)
    model = model_of(name).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    losses, times = [], []
    began = time.perf_counter()
    while len(times) < passes or time.perf_counter() - began < seconds:
        epoch_began = time.perf_counter()
        total = 0.0
        for inputs, targets in loader:
            inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(inputs)
        losses.append(total / len(x))
        times.append((time.perf_counter() - epoch_began) / len(loader))
    return {"model": name, "step_s": times, "loss": [losses[0], losses[-1]]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="all")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--batches", type=int, help="as many samples as are in so many batches")
    parser.add_argument("--passes", type=int, default=4, help="at least so many over the data")
    parser.add_argument("--out", default="grid.jsonl")
    args = parser.parse_args()
    chosen = names() if args.models == "all" else args.models.split(",")
    with open(args.out, "w") as file:
        for name in chosen:
            samples = args.batches * batch_of(name) if args.batches else args.samples
            found = train(name, args.seconds, samples, args.passes)
            file.write(json.dumps(found) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
