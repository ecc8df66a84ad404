"""A stream of sensor readings as an IterableDataset, no length, batches of 13."""
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class SensorStream(IterableDataset):
    """Endless in spirit; here it stops after `limit` readings."""

    def __init__(self, limit, seed):
        super().__init__()
        self.limit = limit
        self.seed = seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        for _ in range(self.limit):
            x = torch.rand(2, generator=g) * 2 - 1
            target = torch.sin(math.pi * x[0]) * x[1]
            yield x, target.unsqueeze(0)


torch.manual_seed(99)
train_stream = DataLoader(SensorStream(300, seed=1), batch_size=13)
test_stream = DataLoader(SensorStream(60, seed=2), batch_size=13)

model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
mse = nn.MSELoss()

for epoch in range(4):
    n_seen, total = 0, 0.0
    for i, (x, y) in enumerate(train_stream):
        optimizer.zero_grad()
        loss = mse(model(x), y)
        loss.backward()
        optimizer.step()
        n_seen += x.size(0)
        total += loss.item() * x.size(0)
    with torch.no_grad():
        sq = [((model(x) - y) ** 2).flatten() for x, y in test_stream]
    print(f"epoch {epoch}: seen {n_seen}, train mse {total / n_seen:.5f}, test mse {torch.cat(sq).mean():.5f}")
