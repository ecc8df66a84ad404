"""Masked reconstruction: (loss * mask).sum() / mask.sum(), so the divisor depends on the batch."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(19)

# low-rank data with holes of varying density
full = torch.randn(173, 3) @ torch.randn(3, 12) + 0.05 * torch.randn(173, 12)
density = torch.rand(173, 1) * 0.6 + 0.3
observed = (torch.rand(173, 12) < density).float()
loader = DataLoader(TensorDataset(full * observed, full, observed), batch_size=25, shuffle=True)


class Imputer(nn.Module):
    def __init__(self, d=12, h=32):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * d, h), nn.ReLU(), nn.Linear(h, d))

    def forward(self, x, mask):
        return self.net(torch.cat([x, mask], dim=1))


model = Imputer()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
criterion = nn.MSELoss(reduction='none')

for epoch in range(7):
    num, den = 0.0, 0.0
    for x, target, mask in loader:
        out = model(x, mask)
        hidden = 1 - mask                     # learn to fill the holes
        l = criterion(out, target)
        loss = (l * hidden).sum() / hidden.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        num += (l.detach() * hidden).sum().item()
        den += hidden.sum().item()
    print(f"epoch {epoch} masked mse {num / den:.4f}")
