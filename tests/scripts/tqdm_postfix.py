"""Two moons MLP with a tqdm progress bar and set_postfix (no seed)."""
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


def make_moons(n, noise=0.1):
    t = torch.rand(n) * math.pi
    label = torch.randint(0, 2, (n,))
    x = torch.where(label == 0, torch.cos(t), 1 - torch.cos(t))
    y = torch.where(label == 0, torch.sin(t), 0.5 - torch.sin(t))
    return torch.stack([x, y], 1) + noise * torch.randn(n, 2), label.float()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NUM_EPOCHS = 6

train_ds = TensorDataset(*make_moons(317))
train_loader = DataLoader(train_ds, batch_size=45, shuffle=True)

model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)

for epoch in range(NUM_EPOCHS):
    loop = tqdm(enumerate(train_loader), total=len(train_loader), leave=False)
    correct, seen, running = 0, 0, 0.0
    for batch_idx, (data, targets) in loop:
        data = data.to(device=device)
        targets = targets.to(device=device)

        scores = model(data).squeeze(1)
        loss = criterion(scores, targets)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        running += loss.item() * data.size(0)
        correct += ((scores > 0).float() == targets).sum().item()
        seen += data.size(0)

        # update progress bar
        loop.set_description(f"Epoch [{epoch}/{NUM_EPOCHS}]")
        loop.set_postfix(loss=loss.item(), acc=correct / seen)
    tqdm.write(f"epoch {epoch}: loss {running / seen:.4f} acc {correct / seen:.3f}")
