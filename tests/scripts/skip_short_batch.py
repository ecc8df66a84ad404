"""A loop full of continue and break: short batches skipped, training stopped once the loss is small enough."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(36)
X = torch.randn(129, 5)
Y = X @ torch.randn(5, 1) + 0.5
dl = DataLoader(TensorDataset(X, Y), batch_size=8, shuffle=True)   # last batch has one sample

net = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
opt = torch.optim.Adam(net.parameters(), lr=0.02)
mse = nn.MSELoss()

done = False
steps = 0
for epoch in range(20):
    best = float("inf")
    for i, (x, y) in enumerate(dl):
        if x.size(0) < 2:
            continue                      # BatchNorm cannot work with one sample
        loss = mse(net(x), y)
        if torch.isnan(loss):
            print("nan, skipped")
            continue
        opt.zero_grad()
        loss.backward()
        opt.step()
        steps += 1
        best = min(best, loss.item())
        if loss.item() < 0.05:
            done = True
            break
    print("epoch", epoch, "best batch loss", round(best, 4))
    if done:
        print("converged after", steps, "steps")
        break
