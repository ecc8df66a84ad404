"""Linear regression with nn.Linear, everything at top level."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

# synthetic data: y = Xw + b + noise
true_w = torch.tensor([[2.0], [-3.4], [1.5], [0.3]])
true_b = 4.2
X = torch.randn(103, 4)
y = X @ true_w + true_b + 0.01 * torch.randn(103, 1)

loader = DataLoader(TensorDataset(X, y), batch_size=10, shuffle=True)

net = nn.Linear(4, 1)
loss = nn.MSELoss()
trainer = torch.optim.SGD(net.parameters(), lr=0.05)

for epoch in range(5):
    for xb, yb in loader:
        l = loss(net(xb), yb)
        trainer.zero_grad()
        l.backward()
        trainer.step()
    l = loss(net(X), y)
    print(f"epoch {epoch + 1}, loss {l:f}")

print("error in w:", (true_w.reshape(-1) - net.weight.data.reshape(-1)).tolist())
print("error in b:", (true_b - net.bias.data).item())
