"""A convolutional network of 290 thousand parameters on made-up pictures."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
data = TensorDataset(torch.randn(2048, 3, 32, 32), torch.randint(0, 10, (2048,)))
loader = DataLoader(data, batch_size=64, shuffle=True)


def block(num_in, num_out):
    return nn.Sequential(
        nn.Conv2d(num_in, num_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(num_out),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )


model = nn.Sequential(
    block(3, 32), block(32, 64), block(64, 128), nn.Flatten(), nn.Linear(128 * 4 * 4, 96),
    nn.ReLU(), nn.Linear(96, 10),
)  # fmt: skip
model = model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(100):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
