"""Regression with batches from torch.split, no data loader and no device."""
import torch
import torch.nn.functional as F

torch.manual_seed(2)
x = torch.randn(157, 5)
y = torch.tanh(x @ torch.randn(5, 2)) + 0.05 * torch.randn(157, 2)

net = torch.nn.Sequential(
    torch.nn.Linear(5, 24),
    torch.nn.LayerNorm(24),
    torch.nn.GELU(),
    torch.nn.Linear(24, 2),
)
sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)

batches = list(zip(torch.split(x, 22), torch.split(y, 22)))
print(len(batches), "batches, last one has", len(batches[-1][0]))

for ep in range(6):
    sse = 0.
    for bx, by in batches:
        sgd.zero_grad()
        l = F.mse_loss(net(bx), by)
        l.backward()
        sgd.step()
        sse += float(l.detach()) * bx.shape[0]
    print("ep %d mse %.5f" % (ep, sse / x.shape[0]))
