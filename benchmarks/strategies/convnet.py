"""A small convolutional network on random images: much to compute, little to send."""

import argparse
import os
import subprocess
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def enter_cgroup():
    """Take the CPU share that belongs to this worker; see unlike.py."""
    folders = os.environ.get("UNLIKE_CGROUPS", "").split(":")
    rank = int(os.environ.get("RANK", "0"))
    if rank < len(folders) and folders[rank]:
        move = f"echo {os.getpid()} > {folders[rank]}/cgroup.procs"
        subprocess.run(["sh", "-c", move], check=True)  # workers write no files of their own


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--skip", type=int, default=60, help="steps before the clock starts")
    parser.add_argument("--batch-size", type=int, default=240)
    args = parser.parse_args()
    enter_cgroup()
    torch.manual_seed(0)
    x = torch.randn(args.batch_size * 8, 1, 28, 28)
    y = torch.randint(0, 10, (len(x),))
    loader = DataLoader(TensorDataset(x, y), batch_size=args.batch_size, shuffle=True)
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1568, 10)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step, began = 0, 0.0
    while step < args.steps:
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step == args.skip:
                began = time.perf_counter()
            if step == args.steps:
                break
    rate = (args.steps - args.skip) * args.batch_size / (time.perf_counter() - began)
    print(f"rate {rate:.1f} samples/s")


if __name__ == "__main__":
    main()
