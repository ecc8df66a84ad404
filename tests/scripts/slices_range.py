"""Homework 1: softmax classifier, mini-batches sliced by hand with range(0, n, b)."""
import torch
import torch.nn as nn

torch.manual_seed(1234)

# ---- data ----
n, d, k = 230, 6, 3
W = torch.randn(d, k)
X = torch.randn(n, d)
Y = (X @ W + 0.5 * torch.randn(n, k)).argmax(dim=1)
Xtr, Ytr = X[:180], Y[:180]
Xte, Yte = X[180:], Y[180:]

# ---- model ----
net = nn.Sequential(nn.Linear(d, 20), nn.Sigmoid(), nn.Linear(20, k))
ce = nn.CrossEntropyLoss()
opt = torch.optim.SGD(net.parameters(), lr=0.8)

# ---- training ----
b = 25
for epoch in range(8):
    tot = 0
    for i in range(0, Xtr.shape[0], b):
        x = Xtr[i:i+b]
        y = Ytr[i:i+b]
        opt.zero_grad()
        out = net(x)
        loss = ce(out, y)
        loss.backward()
        opt.step()
        tot += loss.item() * len(x)
    acc = (net(Xte).argmax(1) == Yte).float().mean().item()
    print("epoch", epoch, "loss", tot / len(Xtr), "test acc", acc)
