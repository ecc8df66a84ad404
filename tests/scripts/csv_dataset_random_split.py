"""A map-style dataset over a CSV read with pandas, random_split, and a confusion matrix by hand."""
import os

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

CSV = "flowers.csv"


def write_csv():
    rng = np.random.default_rng(0)
    rows = []
    means = {"setosa": [5.0, 3.4, 1.4, 0.2], "versicolor": [5.9, 2.7, 4.2, 1.3], "virginica": [6.5, 3.0, 5.5, 2.0]}
    for name, mean in means.items():
        for _ in range(53):
            rows.append([*np.round(rng.normal(mean, 0.35), 2), name])
    pd.DataFrame(rows, columns=["sl", "sw", "pl", "pw", "species"]).to_csv(CSV, index=False)


class FlowerDataset(Dataset):
    def __init__(self, csv_file, transform=None):
        self.frame = pd.read_csv(csv_file)
        self.classes = sorted(self.frame["species"].unique())
        self.class_to_idx = {c: i for i, c in enumerate(self.classes)}
        self.transform = transform

    def __len__(self):
        return len(self.frame)

    def __getitem__(self, idx):
        row = self.frame.iloc[idx]
        x = row.iloc[:4].to_numpy(dtype=np.float32)
        if self.transform:
            x = self.transform(x)
        return torch.from_numpy(x), self.class_to_idx[row["species"]]


def main():
    torch.manual_seed(0)
    if not os.path.exists(CSV):
        write_csv()
    dataset = FlowerDataset(CSV, transform=lambda x: x - 3)
    n_val = int(0.2 * len(dataset))
    train_ds, val_ds = random_split(dataset, [len(dataset) - n_val, n_val],
                                    generator=torch.Generator().manual_seed(42))
    train_dl = DataLoader(train_ds, batch_size=17, shuffle=True)
    val_dl = DataLoader(val_ds, batch_size=17)

    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    opt = torch.optim.Adam(model.parameters(), lr=0.02)
    criterion = nn.CrossEntropyLoss()

    for epoch in range(4):
        model.train()
        train_loss = 0
        for x, y in train_dl:
            opt.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            opt.step()
            train_loss += loss.item() * x.size(0)
        train_loss /= len(train_dl.dataset)

        model.eval()
        confusion = torch.zeros(3, 3, dtype=torch.int64)
        val_loss = 0
        with torch.no_grad():
            for x, y in val_dl:
                out = model(x)
                val_loss += criterion(out, y).item() * x.size(0)
                for t, p in zip(y.view(-1), out.argmax(1).view(-1)):
                    confusion[t.long(), p.long()] += 1
        val_loss /= len(val_dl.dataset)
        acc = confusion.diag().sum().item() / confusion.sum().item()
        print(f"Epoch {epoch}: train {train_loss:.4f} val {val_loss:.4f} acc {acc:.3f}")
    print(confusion)


if __name__ == "__main__":
    main()
