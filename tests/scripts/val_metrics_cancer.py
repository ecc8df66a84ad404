"""Breast cancer: predictions gathered with extend and torch.cat, confusion matrix and report by scikit-learn."""
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import accuracy_score, confusion_matrix
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = load_breast_cancer()
X = ((data.data - data.data.mean(0)) / data.data.std(0)).astype(np.float32)
idx = np.random.RandomState(0).permutation(len(X))
tr, va = idx[:450], idx[450:]
train_loader = DataLoader(TensorDataset(torch.tensor(X[tr]), torch.tensor(data.target[tr])), batch_size=64, shuffle=True)
val_loader = DataLoader(TensorDataset(torch.tensor(X[va]), torch.tensor(data.target[va])), batch_size=64)

model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def validate():
    model.eval()
    all_preds, all_labels, all_logits = [], [], []
    total_loss = 0.0
    with torch.no_grad():
        for x, y in val_loader:
            logits = model(x)
            total_loss += criterion(logits, y).item() * x.size(0)
            preds = logits.argmax(dim=1)
            all_preds.extend(preds.tolist())
            all_labels.extend(y.cpu().numpy())
            all_logits.append(logits)
    all_logits = torch.cat(all_logits)
    np.savetxt("val_logits.csv", all_logits.numpy(), delimiter=",", fmt="%.5f")
    return total_loss / len(val_loader.dataset), all_labels, all_preds


for epoch in range(4):
    model.train()
    running_loss, running_correct = 0.0, 0
    for x, y in train_loader:
        optimizer.zero_grad()
        out = model(x)
        loss = criterion(out, y)
        loss.backward()
        optimizer.step()
        running_loss += loss.item() * x.size(0)
        running_correct += (out.argmax(1) == y).sum().item()
    val_loss, labels, preds = validate()
    print(f"Epoch {epoch + 1}: train loss {running_loss / len(tr):.4f} acc {running_correct / len(tr):.4f} | "
          f"val loss {val_loss:.4f} acc {accuracy_score(labels, preds):.4f}")

print(confusion_matrix(labels, preds))
