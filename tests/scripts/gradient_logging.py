"""Looks at gradients by hand every step: norms per layer, a manual scaling, and zero_grad(set_to_none=False)."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(81)
x = torch.randn(116, 9)
y = torch.sin(x.sum(1, keepdim=True))
loader = DataLoader(TensorDataset(x, y), batch_size=23, shuffle=True)

model = nn.Sequential(nn.Linear(9, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)

with open("gradients.txt", "w") as log:
    for epoch in range(5):
        epoch_loss = 0.0
        for step, (xb, yb) in enumerate(loader):
            loss = nn.functional.mse_loss(model(xb), yb)
            loss.backward()

            norms = {name: p.grad.norm().item() for name, p in model.named_parameters() if p.grad is not None}
            total_norm = sum(v ** 2 for v in norms.values()) ** 0.5
            if total_norm > 1.0:
                for p in model.parameters():
                    p.grad.data.mul_(1.0 / total_norm)
            log.write(f"{epoch} {step} {total_norm:.6f} " + " ".join(f"{v:.5f}" for v in norms.values()) + "\n")

            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            epoch_loss += loss.item()
        print(f"epoch {epoch} loss {epoch_loss / len(loader):.4f} last gradient norm {total_norm:.4f}")
