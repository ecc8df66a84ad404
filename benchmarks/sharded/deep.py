"""A perceptron with large layers and Adam, which says at its end how much memory it needed."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def memory_mib(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith(name))


torch.manual_seed(0)
empty = memory_mib("VmRSS")
layers = [layer for _ in range(12) for layer in (nn.Linear(2048, 2048), nn.ReLU())]
model = nn.Sequential(nn.Linear(32, 2048), *layers, nn.Linear(2048, 4))
data = TensorDataset(torch.randn(128, 32), torch.randint(4, (128,)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for x, y in DataLoader(data, batch_size=16):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print(
    f"empty {empty} rest {memory_mib('VmRSS')} peak {memory_mib('VmHWM')} loss {loss.item():.9f}"
)
