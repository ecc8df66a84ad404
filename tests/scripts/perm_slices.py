"""Two-spiral classification, batches taken from a random permutation."""
import math

import torch
from torch import nn

torch.manual_seed(0)


def spiral_data(n_per_class, classes=2):
    xs, ys = [], []
    for c in range(classes):
        r = torch.linspace(0.1, 1, n_per_class)
        t = torch.linspace(c * math.pi, c * math.pi + 3.5, n_per_class) + 0.1 * torch.randn(n_per_class)
        xs.append(torch.stack([r * torch.sin(t), r * torch.cos(t)], dim=1))
        ys.append(torch.full((n_per_class,), c))
    return torch.cat(xs), torch.cat(ys)


def fit(model, x, y, *, epochs, batch_size, lr):
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    loss_fn = nn.CrossEntropyLoss()
    num_samples = x.shape[0]
    for epoch in range(epochs):
        permutation = torch.randperm(num_samples)
        epoch_loss = 0.0
        for i in range(0, num_samples, batch_size):
            indices = permutation[i:i + batch_size]
            batch_x, batch_y = x[indices], y[indices]

            optimizer.zero_grad()
            loss = loss_fn(model(batch_x), batch_y)
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item() * batch_x.size(0)
        print(f"Epoch {epoch + 1:2d}: loss = {epoch_loss / num_samples:.4f}")


if __name__ == "__main__":
    x, y = spiral_data(101)
    model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    fit(model, x, y, epochs=8, batch_size=31, lr=0.02)
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).float().mean()
    print(f"train accuracy {accuracy:.3f}")
