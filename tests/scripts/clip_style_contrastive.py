"""CLIP-style two-tower contrastive training with a learned temperature (symmetric in-batch negatives)."""
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(88)

latent = torch.randn(119, 5)
image_like = torch.tanh(latent @ torch.randn(5, 14)) + 0.1 * torch.randn(119, 14)
text_like = torch.tanh(latent @ torch.randn(5, 9)) + 0.1 * torch.randn(119, 9)
loader = DataLoader(TensorDataset(image_like, text_like), batch_size=15, shuffle=True)


class TwoTower(nn.Module):
    def __init__(self, embed=8):
        super().__init__()
        self.visual = nn.Sequential(nn.Linear(14, 32), nn.ReLU(), nn.Linear(32, embed))
        self.textual = nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, embed))
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def forward(self, image, text):
        i = F.normalize(self.visual(image), dim=-1)
        t = F.normalize(self.textual(text), dim=-1)
        logits_per_image = self.logit_scale.exp() * i @ t.t()
        return logits_per_image, logits_per_image.t()


model = TwoTower()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
for epoch in range(6):
    total, hits, seen = 0.0, 0, 0
    for image, text in loader:
        li, lt = model(image, text)
        ground_truth = torch.arange(len(image))
        loss = (F.cross_entropy(li, ground_truth) + F.cross_entropy(lt, ground_truth)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, np.log(100))
        total += loss.item() * len(image)
        hits += (li.argmax(1) == ground_truth).sum().item()
        seen += len(image)
    print(f"epoch {epoch}: loss {total / seen:.4f}, match {hits / seen:.3f}, scale {model.logit_scale.exp().item():.2f}")
