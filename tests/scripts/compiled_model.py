"""A model wrapped by torch.compile with the eager backend."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(15)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 32)
        self.fc2 = nn.Linear(32, 3)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))


x = torch.randn(148, 6)
y = (x @ torch.randn(6, 3)).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=21, shuffle=True)

model = MLP().to(device)
compiled = torch.compile(model, backend="eager", dynamic=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for epoch in range(4):
    total = 0.0
    for xb, yb in loader:
        xb, yb = xb.to(device), yb.to(device)
        loss = F.cross_entropy(compiled(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(xb)
    print(f"epoch {epoch}: loss {total / len(x):.4f}")

torch.save(model.state_dict(), "compiled.pt")
