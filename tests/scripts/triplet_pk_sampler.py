"""Face-like embeddings: a custom P x K batch sampler, triplet loss with hard mining inside the batch."""
import random
from collections import defaultdict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Sampler, TensorDataset

random.seed(4)
torch.manual_seed(4)

num_people, per_person, dim = 11, 9, 20
identity = torch.arange(num_people).repeat_interleave(per_person)
faces = torch.randn(num_people, dim)[identity] + 0.8 * torch.randn(num_people * per_person, dim)


class PKSampler(Sampler):
    """P identities, K pictures of each."""

    def __init__(self, labels, p, k):
        self.p, self.k = p, k
        self.by_label = defaultdict(list)
        for i, lab in enumerate(labels.tolist()):
            self.by_label[lab].append(i)

    def __len__(self):
        return -(-len(self.by_label) // self.p)

    def __iter__(self):
        people = list(self.by_label)
        random.shuffle(people)
        for i in range(0, len(people), self.p):
            chosen = people[i:i + self.p]
            if len(chosen) < 2:
                continue
            yield [j for person in chosen for j in random.sample(self.by_label[person], self.k)]


def batch_hard_triplet_loss(emb, labels, margin=0.3):
    dist = torch.cdist(emb, emb)
    same = labels[:, None] == labels[None, :]
    hardest_pos = (dist * same).max(dim=1).values
    hardest_neg = dist.masked_fill(same, float("inf")).min(dim=1).values
    return F.relu(hardest_pos - hardest_neg + margin).mean()


loader = DataLoader(TensorDataset(faces, identity), batch_sampler=PKSampler(identity, p=3, k=5))
net = nn.Sequential(nn.Linear(dim, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)

for epoch in range(8):
    losses = []
    for x, lab in loader:
        emb = F.normalize(net(x), dim=1)
        loss = batch_hard_triplet_loss(emb, lab)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if epoch % 2 == 1:
        print(f"epoch {epoch}: triplet loss {sum(losses) / len(losses):.4f}")

with torch.no_grad():
    e = F.normalize(net(faces), dim=1)
    d = torch.cdist(e, e) + 10 * torch.eye(len(e))
    print("1-NN accuracy", (identity[d.argmin(1)] == identity).float().mean().item())
