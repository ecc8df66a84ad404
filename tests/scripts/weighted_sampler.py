"""Imbalanced fraud data with WeightedRandomSampler; F1 and AUC by scikit-learn on gathered outputs."""
import numpy as np
import torch
import torch.nn as nn
from sklearn.metrics import classification_report, f1_score, roc_auc_score
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

np.random.seed(0)
torch.manual_seed(0)


def make_fraud(n):
    y = (np.random.rand(n) < 0.12).astype(np.int64)
    x = np.random.randn(n, 8).astype(np.float32)
    x[y == 1, :3] += 1.5
    return torch.from_numpy(x), torch.from_numpy(y)


x_train, y_train = make_fraud(350)
x_test, y_test = make_fraud(120)

class_count = torch.bincount(y_train)
weights = 1.0 / class_count[y_train].float()
sampler = WeightedRandomSampler(weights, num_samples=len(weights), replacement=True)

train_loader = DataLoader(TensorDataset(x_train, y_train), batch_size=48, sampler=sampler)
test_loader = DataLoader(TensorDataset(x_test, y_test), batch_size=50)

model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
criterion = nn.BCEWithLogitsLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(4):
    model.train()
    train_losses = []
    for xb, yb in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(xb).view(-1), yb.float())
        loss.backward()
        optimizer.step()
        train_losses.append(loss.item())

    model.eval()
    probs, targets = [], []
    with torch.no_grad():
        for xb, yb in test_loader:
            probs.append(torch.sigmoid(model(xb)).view(-1).cpu())
            targets.append(yb.cpu())
    probs = torch.cat(probs).numpy()
    targets = torch.cat(targets).numpy()
    f1 = f1_score(targets, probs > 0.5)
    auc = roc_auc_score(targets, probs)
    print(f"epoch {epoch}: loss {np.mean(train_losses):.4f} f1 {f1:.3f} auc {auc:.3f}")

print(classification_report(targets, probs > 0.5, digits=3))
