"""A deep ensemble: lists of models and optimizers trained side by side in one loop."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(9)
x = torch.cat([torch.rand(50, 1) * 2 - 3, torch.rand(63, 1) * 2 + 1])
y = torch.sin(x) + 0.1 * torch.randn_like(x)
loader = DataLoader(TensorDataset(x, y), batch_size=34, shuffle=True)


def make_net():
    return nn.Sequential(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 2))


def gaussian_nll(out, target):
    mean, log_var = out.chunk(2, dim=1)
    return (0.5 * log_var + 0.5 * (target - mean) ** 2 / log_var.exp()).mean()


models = [make_net() for _ in range(3)]
optimizers = [torch.optim.Adam(m.parameters(), lr=0.02) for m in models]

for epoch in range(10):
    sums = [0.0] * len(models)
    for xb, yb in loader:
        for k, (net, opt) in enumerate(zip(models, optimizers)):
            opt.zero_grad()
            loss = gaussian_nll(net(xb), yb)
            loss.backward()
            opt.step()
            sums[k] += loss.item() * len(xb)
    if epoch % 3 == 0:
        print(epoch, ["%.4f" % (s / len(x)) for s in sums])

with torch.no_grad():
    grid = torch.linspace(-4, 4, 9).unsqueeze(1)
    means = torch.stack([m(grid)[:, 0] for m in models])
    print("disagreement", [round(v, 3) for v in means.std(0).tolist()])
