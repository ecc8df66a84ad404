"""A home-made layer that keeps batch statistics in buffers (running mean, count of calls, max seen)."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(70)


class InputStandardizer(nn.Module):
    """Normalizes with statistics of everything seen so far; learns them on the fly."""

    def __init__(self, num_features, momentum=0.2):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("var", torch.ones(num_features))
        self.register_buffer("peak", torch.zeros(num_features))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x):
        if self.training:
            self.mean = (1 - self.momentum) * self.mean + self.momentum * x.mean(0)
            self.var = (1 - self.momentum) * self.var + self.momentum * x.var(0, unbiased=False)
            self.peak = torch.maximum(self.peak, x.abs().max(0).values)
            self.calls += 1
        return (x - self.mean) / (self.var + 1e-5).sqrt()


x = torch.randn(139, 5) * torch.tensor([1.0, 10.0, 0.1, 3.0, 50.0]) + torch.tensor([0.0, 5.0, 1.0, -3.0, 20.0])
z = (x - x.mean(0)) / x.std(0)
y = (z[:, 0] * z[:, 1] + z[:, 2] - z[:, 4]).unsqueeze(1)
loader = DataLoader(TensorDataset(x, y), batch_size=18, shuffle=True)

model = nn.Sequential(InputStandardizer(5), nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(6):
    tot = 0.0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(xb), yb)
        loss.backward()
        optimizer.step()
        tot += loss.item() * xb.shape[0]
    print(f"epoch {epoch}: mse {tot / len(x):.4f}")
print("calls", model[0].calls.item(), "peak", [round(v, 2) for v in model[0].peak.tolist()])
