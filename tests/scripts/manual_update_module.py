"""nn.Module with the update written by hand: p -= lr * p.grad with momentum buffers."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(12)


class Perceptron(nn.Module):
    def __init__(self, n_in, n_hidden, n_out):
        super().__init__()
        self.w1 = nn.Parameter(torch.randn(n_in, n_hidden) / n_in ** 0.5)
        self.b1 = nn.Parameter(torch.zeros(n_hidden))
        self.w2 = nn.Parameter(torch.randn(n_hidden, n_out) / n_hidden ** 0.5)
        self.b2 = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return (x @ self.w1 + self.b1).clamp(min=0) @ self.w2 + self.b2


X = torch.rand(163, 2) * 4 - 2
Y = ((X ** 2).sum(1) < 2).long()
train_dl = DataLoader(TensorDataset(X, Y), batch_size=27, shuffle=True)

model = Perceptron(2, 24, 2)
loss_func = nn.functional.cross_entropy
lr, mu = 0.1, 0.9
velocity = [torch.zeros_like(p) for p in model.parameters()]

for epoch in range(8):
    epoch_loss = 0.
    for xb, yb in train_dl:
        loss = loss_func(model(xb), yb)
        loss.backward()
        with torch.no_grad():
            for p, v in zip(model.parameters(), velocity):
                v.mul_(mu).add_(p.grad)
                p -= v * lr
            model.zero_grad()
        epoch_loss += loss.item() * len(xb)
    with torch.no_grad():
        acc = (model(X).argmax(dim=1) == Y).float().mean()
    print(f"epoch {epoch}: {epoch_loss / len(X):.4f} acc {acc:.3f}")
