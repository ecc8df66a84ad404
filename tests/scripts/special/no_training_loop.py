"""Inference and statistics only: there is a model and a loader, but nothing is trained."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
model.eval()

data = torch.randn(101, 8)
counts = torch.zeros(4, dtype=torch.long)
with torch.no_grad():
    for (x,) in DataLoader(TensorDataset(data), batch_size=16):
        counts += torch.bincount(model(x).argmax(1), minlength=4)

print("parameters:", sum(p.numel() for p in model.parameters()))
print("predicted classes:", counts.tolist())
print("feature means:", [round(v, 4) for v in data.mean(0).tolist()])
