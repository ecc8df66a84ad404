"""Iteration-based training: a while loop with next(iter(loader)) and StopIteration."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(11)

MAX_ITER = 40
EVAL_EVERY = 10

x = torch.rand(95, 3) * 2 - 1
y = (x[:, :1] * x[:, 1:2] + torch.sin(3 * x[:, 2:])).detach()
train_set = TensorDataset(x[:75], y[:75])
val_x, val_y = x[75:], y[75:]

loader = DataLoader(train_set, batch_size=14, shuffle=True)
model = nn.Sequential(nn.Linear(3, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
criterion = nn.SmoothL1Loss()

data_iter = iter(loader)
it = 0
running = []
while it < MAX_ITER:
    try:
        xb, yb = next(data_iter)
    except StopIteration:
        data_iter = iter(loader)
        xb, yb = next(data_iter)

    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(xb), yb)
    loss.backward()
    optimizer.step()
    running.append(loss.item())
    it += 1

    if it % EVAL_EVERY == 0:
        model.eval()
        with torch.no_grad():
            val = criterion(model(val_x), val_y).item()
        model.train()
        print(f"iter {it:3d}  train {sum(running) / len(running):.4f}  val {val:.4f}")
        running = []
