"""Elastic net written by hand: L1 and L2 terms over model.parameters() added to the loss."""
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(8)
n, d = 95, 25
w_true = torch.zeros(d, 1)
w_true[:4] = torch.tensor([[3.0], [-2.0], [1.5], [4.0]])
X = torch.randn(n, d)
y = X @ w_true + 0.3 * torch.randn(n, 1)

model = torch.nn.Linear(d, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.05)
l1_lambda, l2_lambda = 0.05, 0.01

for epoch in range(8):
    data_sum = reg_sum = 0.
    for xb, yb in DataLoader(TensorDataset(X, y), batch_size=20, shuffle=True):
        mse = torch.nn.functional.mse_loss(model(xb), yb)
        l1_norm = sum(p.abs().sum() for p in model.parameters())
        l2_norm = sum(p.pow(2.0).sum() for p in model.parameters())
        loss = mse + l1_lambda * l1_norm + l2_lambda * l2_norm
        opt.zero_grad()
        loss.backward()
        opt.step()
        data_sum += mse.item() * len(xb)
        reg_sum += (loss - mse).item()
    print(f"epoch {epoch}: mse {data_sum / n:.4f} penalty {reg_sum / 5:.4f}")

print("weights near zero:", (model.weight.abs() < 0.1).sum().item(), "of", d)
