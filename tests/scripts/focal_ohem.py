"""Focal loss with reduction='none', then online hard example mining: the top-k losses of the batch (no seed)."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

X = torch.randn(210, 7)
y = ((X[:, 0] + X[:, 1] > 1.2) | (X[:, 2] > 1.5)).float()
print("positives: %d of %d" % (y.sum(), len(y)))
dl = DataLoader(TensorDataset(X, y), batch_size=40, shuffle=True)


class FocalLoss(nn.Module):
    def __init__(self, alpha=0.6, gamma=2.0):
        super().__init__()
        self.alpha, self.gamma = alpha, gamma

    def forward(self, logits, targets):
        bce = F.binary_cross_entropy_with_logits(logits, targets, reduction='none')
        pt = torch.exp(-bce)
        a = self.alpha * targets + (1 - self.alpha) * (1 - targets)
        return a * (1 - pt) ** self.gamma * bce


model = nn.Sequential(nn.Linear(7, 24), nn.ReLU(), nn.Linear(24, 1))
focal = FocalLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(6):
    tot = 0.
    for xb, yb in dl:
        per_sample = focal(model(xb).squeeze(1), yb)
        if epoch < 3:
            loss = per_sample.mean()
        else:
            k = max(1, int(0.7 * len(per_sample)))      # keep the hardest 70 % of the batch
            loss = per_sample.topk(k).values.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        tot += per_sample.sum().item()
    print("epoch %d focal %.5f%s" % (epoch, tot / len(X), " (ohem)" if epoch >= 3 else ""))
