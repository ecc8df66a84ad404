"""Parameter groups: no weight decay on biases and norms, a smaller learning rate for the backbone."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(31)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(9, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.backbone(x))


def build_optimizer(model, lr, weight_decay):
    decay, no_decay = [], []
    for name, p in model.backbone.named_parameters():
        (no_decay if p.ndim == 1 else decay).append(p)
    return torch.optim.AdamW([
        {"params": decay, "weight_decay": weight_decay, "lr": lr * 0.3},
        {"params": no_decay, "weight_decay": 0.0, "lr": lr * 0.3},
        {"params": model.head.parameters(), "weight_decay": weight_decay},
    ], lr=lr)


x = torch.randn(137, 9)
y = (x[:, :4] ** 2).argmax(1)
loader = DataLoader(TensorDataset(x, y), batch_size=19, shuffle=True)
model = Net()
optimizer = build_optimizer(model, lr=3e-2, weight_decay=0.05)
criterion = nn.CrossEntropyLoss()

for epoch in range(6):
    epoch_loss = 0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = criterion(model(xb), yb)
        loss.backward()
        optimizer.step()
        epoch_loss += loss.item() / len(loader)
    print(f"epoch {epoch} loss {epoch_loss:.4f} lrs {[g['lr'] for g in optimizer.param_groups]}")
    if epoch == 3:
        for g in optimizer.param_groups:      # drop the learning rates by hand
            g["lr"] *= 0.5
