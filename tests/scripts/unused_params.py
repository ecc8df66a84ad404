"""Stochastic depth and alternating heads: some parameters get no gradient in some steps."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(0)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.fc = nn.Linear(d, d)

    def forward(self, x):
        return x + F.relu(self.fc(x))


class StochasticDepthNet(nn.Module):
    def __init__(self, d=16, depth=4, p_survive=0.75):
        super().__init__()
        self.inp = nn.Linear(6, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(depth))
        self.head_class = nn.Linear(d, 3)
        self.head_value = nn.Linear(d, 1)
        self.p_survive = p_survive

    def forward(self, x, task):
        h = F.relu(self.inp(x))
        for block in self.blocks:
            if self.training and random.random() > self.p_survive:
                continue                       # the whole block is skipped in this step
            h = block(h)
        return self.head_class(h) if task == "class" else self.head_value(h).squeeze(1)


x = torch.randn(115, 6)
labels = (x[:, :3] + 0.3 * torch.randn(115, 3)).argmax(1)
values = x.sum(1)

net = StochasticDepthNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
step = 0
for epoch in range(10):
    history = {"class": [], "value": []}
    for idx in torch.randperm(len(x)).split(23):
        task = "class" if step % 2 == 0 else "value"
        out = net(x[idx], task)
        loss = F.cross_entropy(out, labels[idx]) if task == "class" else F.mse_loss(out, values[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history[task].append(loss.item())
        step += 1
    print(epoch, {k: round(sum(v) / len(v), 4) for k, v in history.items()})

net.eval()
with torch.no_grad():
    print("accuracy", (net(x, "class").argmax(1) == labels).float().mean().item())
