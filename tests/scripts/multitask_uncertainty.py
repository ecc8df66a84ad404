"""Multi-task network: regression, classification and a rare third task present in some batches only."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(61)
N = 176
x = torch.randn(N, 8)
age = x[:, 0] * 2 + x[:, 1]
gender = (x[:, 2] + 0.2 * torch.randn(N) > 0).long()
mood = (x[:, 3:6]).argmax(1)
has_mood = torch.rand(N) < 0.1            # only a tenth is annotated
mood[~has_mood] = -1
loader = DataLoader(TensorDataset(x, age, gender, mood), batch_size=15, shuffle=True)


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.age = nn.Linear(32, 1)
        self.gender = nn.Linear(32, 2)
        self.mood = nn.Linear(32, 3)
        self.log_vars = nn.Parameter(torch.zeros(2))       # Kendall's uncertainty weights

    def forward(self, x):
        h = self.trunk(x)
        return {"age": self.age(h).squeeze(-1), "gender": self.gender(h), "mood": self.mood(h)}


model = MultiTask()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
for epoch in range(5):
    sums = dict(age=0.0, gender=0.0, mood=0.0)
    mood_batches = 0
    for xb, a, g, m in loader:
        out = model(xb)
        l_age = F.mse_loss(out["age"], a)
        l_gender = F.cross_entropy(out["gender"], g)
        loss = (torch.exp(-model.log_vars[0]) * l_age + model.log_vars[0]
                + torch.exp(-model.log_vars[1]) * l_gender + model.log_vars[1])
        labelled = m >= 0
        if labelled.any():
            l_mood = F.cross_entropy(out["mood"][labelled], m[labelled])
            loss = loss + 0.5 * l_mood
            sums["mood"] += l_mood.item()
            mood_batches += 1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sums["age"] += l_age.item() * len(xb)
        sums["gender"] += l_gender.item() * len(xb)
    print(f"epoch {epoch}: age mse {sums['age'] / N:.4f}, gender ce {sums['gender'] / N:.4f}, "
          f"mood ce {sums['mood'] / max(mood_batches, 1):.4f} over {mood_batches} batches")
