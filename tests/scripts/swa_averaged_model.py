"""Stochastic weight averaging with torch.optim.swa_utils and update_bn at the end."""
import torch
import torch.nn as nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
x = torch.randn(200, 6)
y = torch.sin(x[:, 0]) + x[:, 1] * x[:, 2]
loader = DataLoader(TensorDataset(x[:160], y[:160]), batch_size=21, shuffle=True)

model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
loss_fn = nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
swa_model = AveragedModel(model)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
swa_start = 5
swa_scheduler = SWALR(optimizer, swa_lr=0.02, anneal_epochs=1)

for epoch in range(8):
    total = 0.0
    for input, target in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(input), target)
        loss.backward()
        optimizer.step()
        total += loss.item() * input.size(0)
    if epoch >= swa_start:
        swa_model.update_parameters(model)
        swa_scheduler.step()
    else:
        scheduler.step()
    print(f"epoch {epoch} loss {total / 160:.4f} lr {optimizer.param_groups[0]['lr']:.4f}")

# Update bn statistics for the swa_model at the end
update_bn(loader, swa_model)
swa_model.eval()
with torch.no_grad():
    print("swa test mse", loss_fn(swa_model(x[160:]), y[160:]).item())
