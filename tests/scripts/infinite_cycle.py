"""Iteration-based training over an endless generator made from a loader."""
import itertools

import torch
from torch import nn, optim
from torch.utils import data


def cycle(dl):
    while True:
        for batch in dl:
            yield batch


class Waves(data.Dataset):
    def __init__(self, n=61, length=16):
        t = torch.linspace(0, 6.28, length)
        freq = torch.rand(n, 1) * 2 + 0.5
        self.x = torch.sin(freq * t)
        self.freq = freq

    def __getitem__(self, i):
        return self.x[i], self.freq[i]

    def __len__(self):
        return len(self.x)


def main(train_steps=36):
    torch.manual_seed(42)
    dl = cycle(data.DataLoader(Waves(), batch_size=9, shuffle=True, drop_last=True))
    model = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 1))
    opt = optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
    history = []
    for step in itertools.count():
        if step >= train_steps:
            break
        x, f = next(dl)
        loss = (model(x) - f).abs().mean()
        loss.backward()
        opt.step()
        opt.zero_grad()
        history.append(loss.detach())
        if (step + 1) % 6 == 0:
            print("step", step + 1, "mae", torch.stack(history[-6:]).mean().item())


main()
