"""Foretell the light on one solar sensor, ten seconds ahead, from fifty sensors around it.

An ordinary training script: one process, nothing in it knows about reparto. It reads a day of a
sensor grid as the MIDC publishes it (one row a second, one column a sensor), or makes one up.

    python examples/irradiance.py --epochs 5
    python examples/irradiance.py --data 20100619.csv
"""

import argparse

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

HORIZON = 10  # seconds


def read(path):
    """Return seconds of the day and W/m^2 (NaN where missing) of a file with a header."""
    with open(path) as file:
        names = file.readline().strip().split(",")
    columns = [i for i, name in enumerate(names) if "W/m^2" in name and "Tilt" not in name]
    table = np.genfromtxt(path, delimiter=",", skip_header=1, missing_values="-99999")
    second, clock = table[:, names.index("Seconds")], table[:, names.index("HST")]
    watts = table[:, columns]
    watts[watts < -100] = np.nan
    return 3600 * (clock // 100) + 60 * (clock % 100) + second, watts


def make(num_seconds, num_sensors=50):
    """Return the same of clouds that a wind of 10 m/s drives over a field of 1 km."""
    random = np.random.default_rng(0)
    places = random.uniform(0, 1000, (num_sensors, 2))
    waves = 2 * np.pi / random.uniform(400, 4000, 60) * np.exp(2j * np.pi * random.random(60))
    waves = np.stack([waves.real, waves.imag])
    phases = random.uniform(0, 2 * np.pi, 60)
    second = 43_200.0 + np.arange(num_seconds) - num_seconds // 2
    here, drift = places @ waves + phases, np.outer(second, [-7, -7] @ waves)
    clouds = np.cos(drift) @ np.cos(here).T + np.sin(drift) @ np.sin(here).T
    shade = 0.35 + 0.35 * np.tanh(clouds / 3)
    clear = 1000 * np.cos((second - 43_200) / 86_400 * 2 * np.pi)
    return second, clear[:, None] * (1 - shade) + random.normal(0, 1.5, shade.shape)


def load_data(path, num_seconds, batch_size):
    """Return a shuffled training loader, the test set, and the test error of persistence."""
    second, watts = read(path) if path else make(num_seconds)
    target = watts.shape[1] // 2
    later = np.searchsorted(second, second + HORIZON)
    now = np.flatnonzero(later < len(second))
    now = now[second[later[now]] == second[now] + HORIZON]
    now = now[~np.isnan(watts[now]).any(1) & ~np.isnan(watts[later[now], target])]
    now = now[watts[now].mean(1) > 10]  # by day
    x = torch.tensor((watts[now] - 500) / 300, dtype=torch.float32)
    y = torch.tensor((watts[later[now], target, None] - 500) / 300, dtype=torch.float32)
    cut = int(0.8 * len(x))
    train_loader = DataLoader(TensorDataset(x[:cut], y[:cut]), batch_size, shuffle=True)
    persistence = F.mse_loss(x[cut:, target : target + 1], y[cut:]).item() ** 0.5
    return train_loader, (x[cut:], y[cut:]), persistence


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="a CSV file with a header, in the MIDC's form")
    parser.add_argument("--seconds", type=int, default=10_000, help="of data that are made up")
    parser.add_argument("--hidden", type=int, nargs="*", default=[200, 100])
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()

    torch.manual_seed(0)
    train_loader, (x_test, y_test), persistence = load_data(
        args.data, args.seconds, args.batch_size
    )
    sizes = [x_test.shape[1], *args.hidden]
    layers = [part for a, b in zip(sizes, sizes[1:]) for part in (nn.Linear(a, b), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    for epoch in range(1, args.epochs + 1):
        model.train()
        total_loss = 0.0
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total_loss += loss.item() * len(x)
        model.eval()
        with torch.no_grad():
            error = F.mse_loss(model(x_test), y_test).item() ** 0.5
        print(
            f"epoch {epoch:2d}  train loss {total_loss / len(train_loader.dataset):.4f}  "
            f"test error {300 * error:.1f} W/m2  persistence {300 * persistence:.1f} W/m2"
        )

    torch.save(model.state_dict(), "irradiance.pt")


if __name__ == "__main__":
    main()
