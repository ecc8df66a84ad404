"""Stateful GRU: several sensors in parallel, the hidden state carried across batches and reset each epoch."""
import torch
import torch.nn as nn

torch.manual_seed(21)

# 7 sensors, each a noisy sine of its own frequency
n_sensors, length, window = 7, 161, 20
t = torch.arange(length, dtype=torch.float32)
freqs = torch.linspace(0.1, 0.4, n_sensors).unsqueeze(1)
series = torch.sin(freqs * t) + 0.05 * torch.randn(n_sensors, length)      # (B, T)


class Forecaster(nn.Module):
    def __init__(self, hidden_size=24):
        super().__init__()
        self.gru = nn.GRU(1, hidden_size, batch_first=True)
        self.out = nn.Linear(hidden_size, 1)

    def forward(self, x, h=None):
        y, h = self.gru(x, h)
        return self.out(y), h


model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
loss_fn = nn.MSELoss()

for epoch in range(5):
    hidden = None
    epoch_loss, steps = 0, 0
    for start in range(0, length - 1, window):
        x = series[:, start:start + window]
        y = series[:, start + 1:start + 1 + window]
        x = x[:, :y.size(1)]
        if hidden is not None:
            hidden = hidden.detach()
        pred, hidden = model(x.unsqueeze(-1), hidden)
        loss = loss_fn(pred.squeeze(-1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item()
        steps += 1
    print(f"epoch {epoch}  mse {epoch_loss / steps:.4f}  |h| {hidden.norm().item():.3f}")
