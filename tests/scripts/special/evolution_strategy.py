"""(1+1) evolution strategy with the 1/5 success rule: gradient-free, each generation depends on the last."""
import copy

import torch
import torch.nn as nn

torch.manual_seed(0)
x = torch.linspace(-2, 2, 91).unsqueeze(1)
y = torch.sin(2 * x)

parent = nn.Sequential(nn.Linear(1, 12), nn.Tanh(), nn.Linear(12, 1))


@torch.no_grad()
def fitness(net):
    return ((net(x) - y) ** 2).mean().item()


best = fitness(parent)
sigma = 0.1
for generation in range(600):
    child = copy.deepcopy(parent)
    with torch.no_grad():
        for p in child.parameters():
            p.add_(sigma * torch.randn_like(p))
    score = fitness(child)
    if score < best:
        parent, best = child, score
        sigma *= 1.2
    else:
        sigma *= 0.955
    if generation % 100 == 99:
        print(f"generation {generation + 1}: mse {best:.5f} sigma {sigma:.5f}")
