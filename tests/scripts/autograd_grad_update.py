"""Updates from torch.autograd.grad instead of backward, NumPy-style network in a list of tensors."""
import torch

torch.manual_seed(55)

x = torch.linspace(-2, 2, 121).unsqueeze(1)
y = (x ** 3 - x) / 2 + 0.1 * torch.randn_like(x)

sizes = [1, 20, 20, 1]
params = []
for fan_in, fan_out in zip(sizes[:-1], sizes[1:]):
    params.append((torch.randn(fan_in, fan_out) * (1 / fan_in) ** 0.5).requires_grad_())
    params.append(torch.zeros(fan_out, requires_grad=True))


def forward(inp):
    h = inp
    for W, b in zip(params[:-2:2], params[1:-2:2]):
        h = torch.tanh(h @ W + b)
    return h @ params[-2] + params[-1]


lr = 0.03
for epoch in range(20):
    order = torch.randperm(len(x))
    running = 0.0
    for i in range(0, len(x), 35):
        idx = order[i:i + 35]
        loss = torch.mean((forward(x[idx]) - y[idx]) ** 2)
        grads = torch.autograd.grad(loss, params)
        with torch.no_grad():
            for p, g in zip(params, grads):
                p.sub_(g, alpha=lr)
        running += loss.item() * len(idx)
    if epoch % 5 == 4:
        print(f"epoch {epoch}: mse {running / len(x):.4f}")
