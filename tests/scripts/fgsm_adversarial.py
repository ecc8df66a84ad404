"""Adversarial training: FGSM examples from the gradient with respect to the inputs, then one step on both."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(71)
y = torch.randint(0, 3, (158,))
x = 1.5 * torch.randn(3, 10)[y] + 1.3 * torch.randn(158, 10)
loader = DataLoader(TensorDataset(x[:118], y[:118]), batch_size=17, shuffle=True)
test_loader = DataLoader(TensorDataset(x[118:], y[118:]), batch_size=17)

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
epsilon = 0.3


def fgsm(model, x, y, eps):
    x_adv = x.clone().detach().requires_grad_(True)
    loss = F.cross_entropy(model(x_adv), y)
    grad, = torch.autograd.grad(loss, x_adv)
    return (x_adv + eps * grad.sign()).detach()


for epoch in range(4):
    model.train()
    clean_sum = adv_sum = 0.0
    for xb, yb in loader:
        x_adv = fgsm(model, xb, yb, epsilon)
        clean, adv = F.cross_entropy(model(xb), yb), F.cross_entropy(model(x_adv), yb)
        optimizer.zero_grad()
        (0.5 * clean + 0.5 * adv).backward()
        optimizer.step()
        clean_sum += clean.item()
        adv_sum += adv.item()
    model.eval()
    robust = sum((model(fgsm(model, xb, yb, epsilon)).argmax(1) == yb).sum().item() for xb, yb in test_loader)
    print(f"epoch {epoch}: clean {clean_sum / len(loader):.4f} adversarial {adv_sum / len(loader):.4f} "
          f"robust accuracy {robust / 40:.3f}")
