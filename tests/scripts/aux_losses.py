"""GoogLeNet-style auxiliary classifiers: loss = loss1 + 0.3 * aux losses, in training mode only."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(14)


class DeeplySupervised(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage1 = nn.Sequential(nn.Linear(12, 32), nn.ReLU())
        self.stage2 = nn.Sequential(nn.Linear(32, 32), nn.ReLU())
        self.stage3 = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.2))
        self.aux1 = nn.Linear(32, 4)
        self.aux2 = nn.Linear(32, 4)
        self.fc = nn.Linear(32, 4)

    def forward(self, x):
        h1 = self.stage1(x)
        h2 = self.stage2(h1)
        out = self.fc(self.stage3(h2))
        if self.training:
            return out, self.aux2(h2), self.aux1(h1)
        return out


x = torch.randn(198, 12)
y = (x[:, 0] > 0).long() * 2 + (x[:, 1] * x[:, 2] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=29, shuffle=True)
model = DeeplySupervised()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

for epoch in range(6):
    model.train()
    main_l = aux_l = 0
    for inputs, labels in loader:
        optimizer.zero_grad()
        outputs, aux2, aux1 = model(inputs)
        loss0 = F.cross_entropy(outputs, labels)
        loss1 = F.cross_entropy(aux1, labels)
        loss2 = F.cross_entropy(aux2, labels)
        loss = loss0 + 0.3 * loss1 + 0.3 * loss2
        loss.backward()
        optimizer.step()
        main_l += loss0.item() * len(labels)
        aux_l += (loss1 + loss2).item() * len(labels)
    model.eval()
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    print(f"epoch {epoch}: main {main_l / len(x):.4f}, aux {aux_l / len(x):.4f}, acc {acc:.3f}")
