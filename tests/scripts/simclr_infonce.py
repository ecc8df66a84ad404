"""SimCLR: two random views of each sample, InfoNCE with the other samples of the batch as negatives."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class ContrastivePairs(Dataset):
    def __init__(self, n=104, dim=16):
        self.y = torch.randint(0, 4, (n,))
        self.x = torch.randn(4, dim)[self.y] + 1.5 * torch.randn(n, dim)

    def augment(self, v):
        v = v + 0.3 * torch.randn_like(v)
        drop = torch.rand_like(v) < 0.2
        return v.masked_fill(drop, 0.0)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return (self.augment(self.x[i]), self.augment(self.x[i])), self.y[i]


class SimCLR(nn.Module):
    def __init__(self, dim=16, hidden=32, out=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        self.projector = nn.Sequential(nn.ReLU(), nn.Linear(hidden, out))

    def forward(self, x):
        return self.projector(self.encoder(x))


def info_nce_loss(features, batch_size, temperature=0.5):
    labels = torch.cat([torch.arange(batch_size) for _ in range(2)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()

    features = F.normalize(features, dim=1)
    similarity_matrix = torch.matmul(features, features.T)

    # discard the main diagonal from both: labels and similarities matrix
    mask = torch.eye(labels.shape[0], dtype=torch.bool)
    labels = labels[~mask].view(labels.shape[0], -1)
    similarity_matrix = similarity_matrix[~mask].view(similarity_matrix.shape[0], -1)

    # select and combine multiple positives, then only the negatives
    positives = similarity_matrix[labels.bool()].view(labels.shape[0], -1)
    negatives = similarity_matrix[~labels.bool()].view(similarity_matrix.shape[0], -1)

    logits = torch.cat([positives, negatives], dim=1) / temperature
    labels = torch.zeros(logits.shape[0], dtype=torch.long)
    return logits, labels


dataset = ContrastivePairs()
loader = DataLoader(dataset, batch_size=18, shuffle=True)
model = SimCLR()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
criterion = nn.CrossEntropyLoss()

for epoch in range(5):
    loss_sum = acc_sum = 0.0
    for (v1, v2), _ in loader:
        features = model(torch.cat([v1, v2], dim=0))
        logits, labels = info_nce_loss(features, v1.size(0))
        loss = criterion(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item()
        acc_sum += (logits.argmax(1) == 0).float().mean().item()
    print(f"epoch {epoch}  InfoNCE {loss_sum / len(loader):.4f}  top-1 {acc_sum / len(loader):.3f}")
