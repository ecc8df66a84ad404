"""MLP with BatchNorm1d and Dropout; drop_last=True in training, False in validation."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(10)


class TabularModel(nn.Module):
    def __init__(self, in_features=10, layers=(32, 16), p=0.2, out_features=3):
        super().__init__()
        modules = []
        for width in layers:
            modules += [nn.Linear(in_features, width), nn.ReLU(inplace=True), nn.BatchNorm1d(width), nn.Dropout(p)]
            in_features = width
        modules.append(nn.Linear(in_features, out_features))
        self.layers = nn.Sequential(*modules)

    def forward(self, x):
        return self.layers(x)


W = torch.randn(10, 3)
x = torch.randn(281, 10) * 3 + 1
y = (x @ W).argmax(1)
train_dl = DataLoader(TensorDataset(x[:211], y[:211]), batch_size=30, shuffle=True, drop_last=True)
valid_dl = DataLoader(TensorDataset(x[211:], y[211:]), batch_size=30, drop_last=False)

model = TabularModel()
opt = torch.optim.Adam(model.parameters(), lr=0.02)

for epoch in range(5):
    model.train()
    for xb, yb in train_dl:
        loss = F.cross_entropy(model(xb), yb)
        loss.backward()
        opt.step()
        opt.zero_grad()

    model.eval()
    with torch.no_grad():
        losses, nums = zip(*[(F.cross_entropy(model(xb), yb).item(), len(xb)) for xb, yb in valid_dl])
        accs = torch.cat([(model(xb).argmax(1) == yb).float() for xb, yb in valid_dl])
    val_loss = sum(l * n for l, n in zip(losses, nums)) / sum(nums)
    print(epoch, f"last train batch {loss.item():.4f} valid {val_loss:.4f} acc {accs.mean():.3f}")

print("running mean of the first BatchNorm:", model.layers[2].running_mean[:4])
