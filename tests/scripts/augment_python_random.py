"""Augmentation drawn from Python's and NumPy's generators in __getitem__, no loader workers."""
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def seed_everything(seed=42):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class GestureDataset(Dataset):
    def __init__(self, n, train):
        self.train = train
        self.label = np.random.randint(0, 4, n)
        t = np.linspace(0, 1, 24)
        self.signal = np.stack([np.sin(2 * np.pi * (c + 1) * t) for c in self.label])

    def __len__(self):
        return len(self.label)

    def __getitem__(self, i):
        s = self.signal[i].copy()
        if self.train:
            if random.random() < 0.5:
                s = -s
            s = s * random.uniform(0.7, 1.3) + np.random.normal(0, 0.3, s.shape)
        return torch.tensor(s, dtype=torch.float32).unsqueeze(0), torch.tensor(self.label[i])


seed_everything(2024)
train_dl = DataLoader(GestureDataset(92, train=True), batch_size=16, shuffle=True)
valid_dl = DataLoader(GestureDataset(30, train=False), batch_size=16)

model = nn.Sequential(
    nn.Conv1d(1, 8, 5, padding=2), nn.GroupNorm(2, 8), nn.ReLU(), nn.MaxPool1d(2),
    nn.Conv1d(8, 16, 5, padding=2), nn.GroupNorm(4, 16), nn.ReLU(),
    nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 4),
)
opt = torch.optim.AdamW(model.parameters(), lr=2e-2)
lossf = nn.CrossEntropyLoss()

for epoch in range(5):
    model.train()
    tr = 0
    for xb, yb in train_dl:
        opt.zero_grad()
        l = lossf(model(xb), yb)
        l.backward()
        opt.step()
        tr += l.item()
    model.eval()
    preds = []
    with torch.no_grad():
        for xb, yb in valid_dl:
            preds += model(xb).argmax(1).tolist()
    acc = np.mean(np.array(preds) == valid_dl.dataset.label)
    print(f"[{epoch}] train {tr / len(train_dl):.4f} | valid acc {acc:.3f}")
