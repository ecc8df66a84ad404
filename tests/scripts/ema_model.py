"""An exponential moving average copy of the model, buffers included, evaluated beside the raw one."""
from copy import deepcopy

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class ModelEMA:
    def __init__(self, model, decay=0.9):
        self.ema = deepcopy(model).eval()
        self.decay = decay
        for p in self.ema.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        msd = model.state_dict()
        for k, v in self.ema.state_dict().items():
            if v.dtype.is_floating_point:
                v *= self.decay
                v += (1.0 - self.decay) * msd[k].detach()


torch.manual_seed(24)
x = torch.randn(222, 15)
y = (x[:, :3].sum(1) + 0.8 * torch.randn(222) > 0).long()
train_loader = DataLoader(TensorDataset(x[:150], y[:150]), batch_size=17, shuffle=True)
test_x, test_y = x[150:], y[150:]

model = nn.Sequential(nn.Linear(15, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
ema = ModelEMA(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()

for epoch in range(5):
    model.train()
    for xb, yb in train_loader:
        loss = criterion(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)

    model.eval()
    with torch.no_grad():
        raw = criterion(model(test_x), test_y).item()
        avg = criterion(ema.ema(test_x), test_y).item()
    print(f"epoch {epoch}: test loss raw {raw:.4f}, ema {avg:.4f}")

torch.save({"model": model.state_dict(), "ema": ema.ema.state_dict()}, "ema.pt")
