"""Class-weighted cross entropy on imbalanced data; per-class recall."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(50)
counts = [150, 40, 15]
centers = torch.randn(3, 6) * 1.2
x = torch.cat([centers[c] + torch.randn(n, 6) for c, n in enumerate(counts)])
y = torch.cat([torch.full((n,), c) for c, n in enumerate(counts)])
loader = DataLoader(TensorDataset(x, y), batch_size=33, shuffle=True)

class_weights = torch.tensor([sum(counts) / (3 * n) for n in counts], dtype=torch.float32)
print("class weights", class_weights)
# note: with weights, 'mean' divides by the sum of the weights of the batch
criterion = nn.CrossEntropyLoss(weight=class_weights)

model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(6):
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        pred = model(x).argmax(1)
        recall = [((pred == c) & (y == c)).sum().item() / n for c, n in enumerate(counts)]
        total = criterion(model(x), y).item()
    print(f"epoch {epoch} weighted loss {total:.4f} recall {[round(r, 3) for r in recall]}")
