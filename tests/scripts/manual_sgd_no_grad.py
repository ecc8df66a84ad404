"""Homework 2: nn.Module trained without torch.optim, p.add_(p.grad, alpha=-lr), learning rate halved by hand."""
import torch
from torch import nn

torch.manual_seed(29)

# XOR-like data, nothing fancy
N = 104
X = torch.rand(N, 2) * 2 - 1
T = (X[:, 0] * X[:, 1] > 0).float().view(-1, 1)

model = nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 1), nn.Sigmoid())
lr = 1.0
B = 15

for epoch in range(10):
    p_idx = torch.randperm(N)
    X, T = X[p_idx], T[p_idx]
    total_loss = 0
    for k in range(0, N, B):
        xb, tb = X[k:k+B], T[k:k+B]
        out = model(xb)
        loss = nn.functional.binary_cross_entropy(out, tb)
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.add_(p.grad, alpha=-lr)
        total_loss += loss.item() * xb.shape[0]
    if epoch == 6:
        lr = lr / 2
    print("epoch:", epoch, "loss:", total_loss / N)

print("accuracy:", ((model(X) > 0.5).float() == T).float().mean().item())
