"""145 samples in batches of 16: the last batch has one; epoch metrics weighted by batch size."""
import torch
from torch import nn, optim
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(145)
features = torch.randn(185, 7)
targets = features[:, 0] - 2 * features[:, 3].abs() + 0.1 * torch.randn(185)
full = TensorDataset(features, targets)
train_subset = Subset(full, range(145))
valid_subset = Subset(full, list(range(145, 185)))


def run_epoch(model, loader, opt=None):
    total, count = 0.0, 0
    for inputs, target in loader:
        out = model(inputs).squeeze(-1)
        loss = nn.functional.huber_loss(out, target)
        if opt is not None:
            opt.zero_grad()
            loss.backward()
            opt.step()
        total += loss.item() * len(inputs)
        count += len(inputs)
    return total / count


model = nn.Sequential(nn.Linear(7, 30), nn.ELU(), nn.Linear(30, 1))
opt = optim.NAdam(model.parameters(), lr=1e-2)
train_loader = DataLoader(train_subset, batch_size=16, shuffle=True)
valid_loader = DataLoader(valid_subset, batch_size=16)
for epoch in range(4):
    train_loss = run_epoch(model, train_loader, opt)
    with torch.no_grad():
        valid_loss = run_epoch(model, valid_loader)
    print({"epoch": epoch, "train": round(train_loss, 5), "valid": round(valid_loss, 5)})
