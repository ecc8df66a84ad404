"""Writes a CSV log with csv.writer and a loss curve with matplotlib (Agg)."""
import csv

import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(27)

x = torch.linspace(-3, 3, 142).unsqueeze(1)
y = torch.sin(2 * x) * torch.exp(-x.abs() / 3) + 0.05 * torch.randn_like(x)
perm = torch.randperm(142)
train_loader = DataLoader(TensorDataset(x[perm[:110]], y[perm[:110]]), batch_size=20, shuffle=True)
val_x, val_y = x[perm[110:]], y[perm[110:]]

model = nn.Sequential(nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss_fn = nn.MSELoss()

train_curve, val_curve = [], []
with open("log.csv", "w", newline="") as f:
    writer = csv.writer(f)
    writer.writerow(["epoch", "train_loss", "val_loss"])
    for epoch in range(6):
        running = 0.0
        for xb, yb in train_loader:
            optimizer.zero_grad()
            loss = loss_fn(model(xb), yb)
            loss.backward()
            optimizer.step()
            running += loss.item() * xb.size(0)
        with torch.no_grad():
            val_loss = loss_fn(model(val_x), val_y).item()
        train_curve.append(running / 110)
        val_curve.append(val_loss)
        writer.writerow([epoch, f"{train_curve[-1]:.6f}", f"{val_loss:.6f}"])
        print(epoch, train_curve[-1], val_loss)

plt.figure(figsize=(3, 2))
plt.plot(train_curve, label="train")
plt.plot(val_curve, label="val")
plt.legend()
plt.savefig("loss.png", dpi=50)
plt.close()
