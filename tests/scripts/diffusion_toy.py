"""DDPM on a two-dimensional S-curve: random time steps and noise in the loop, EMA of the weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)

T = 50
betas = torch.linspace(1e-4, 0.05, T)
alphas_cumprod = torch.cumprod(1 - betas, 0)

t_ = 3 * 3.1416 * (torch.rand(390) - 0.5)
data = torch.stack([torch.sin(t_), torch.sign(t_) * (torch.cos(t_) - 1)], 1) / 2 + 0.02 * torch.randn(390, 2)


class Denoiser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.time = nn.Embedding(T, width)
        self.inp = nn.Linear(2, width)
        self.mid = nn.Linear(width, width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, t):
        h = F.silu(self.inp(x) + self.time(t))
        return self.out(F.silu(self.mid(h)))


model = Denoiser()
ema = {k: v.detach().clone() for k, v in model.named_parameters()}
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
batch_size = 60

for epoch in range(8):
    order = torch.randperm(len(data))
    losses = []
    for i in range(0, len(data), batch_size):
        x0 = data[order[i:i + batch_size]]
        t = torch.randint(0, T, (x0.shape[0],))
        noise = torch.randn_like(x0)
        a = alphas_cumprod[t].unsqueeze(1)
        xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
        loss = F.mse_loss(model(xt, t), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.)
        optimizer.step()
        with torch.no_grad():
            for k, v in model.named_parameters():
                ema[k].lerp_(v, 0.05)
        losses.append(loss.item())
    if epoch % 2 == 1:
        print(f"epoch {epoch}: noise mse {sum(losses) / len(losses):.4f}")

torch.save(ema, "ema_weights.pt")
