"""Variable-length sequences: custom batch_sampler by length, pad_sequence, pack_padded_sequence."""
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

random.seed(17)
torch.manual_seed(17)

PAD = 0
VOCAB = 12


class LanguageDataset(Dataset):
    """Does the sequence hold more tokens below 6 than above?"""

    def __init__(self, n):
        self.seqs, self.labels = [], []
        for _ in range(n):
            label = random.randint(0, 1)
            length = random.randint(3, 15)
            lo, hi = (1, 8) if label else (4, 11)
            self.seqs.append(torch.tensor([random.randint(lo, hi) for _ in range(length)]))
            self.labels.append(label)

    def __len__(self):
        return len(self.seqs)

    def __getitem__(self, i):
        return self.seqs[i], self.labels[i]


class BucketBatchSampler(Sampler):
    """Batches of sequences of similar length; the order of the batches is random."""

    def __init__(self, lengths, batch_size):
        order = sorted(range(len(lengths)), key=lambda i: lengths[i])
        self.batches = [order[i:i + batch_size] for i in range(0, len(order), batch_size)]

    def __iter__(self):
        random.shuffle(self.batches)
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


def collate(batch):
    batch.sort(key=lambda pair: len(pair[0]), reverse=True)
    seqs, labels = zip(*batch)
    lengths = torch.tensor([len(s) for s in seqs])
    return pad_sequence(seqs, batch_first=True, padding_value=PAD), lengths, torch.tensor(labels)


class Classifier(nn.Module):
    def __init__(self, emb=8, hidden=16):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.lstm = nn.LSTM(emb, hidden, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.emb(x), lengths.cpu(), batch_first=True)
        _, (h, _) = self.lstm(packed)
        return self.fc(torch.cat([h[0], h[1]], dim=1))


train_set = LanguageDataset(143)
sampler = BucketBatchSampler([len(s) for s in train_set.seqs], batch_size=18)
train_loader = DataLoader(train_set, batch_sampler=sampler, collate_fn=collate)

model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
criterion = nn.CrossEntropyLoss()

for epoch in range(1, 6):
    total_loss = total_correct = total = 0
    for x, lengths, y in train_loader:
        logits = model(x, lengths)
        loss = criterion(logits, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        total_loss += loss.item() * y.size(0)
        total_correct += (logits.argmax(dim=1) == y).sum().item()
        total += y.size(0)
    print(f"epoch {epoch}: loss={total_loss / total:.4f} acc={total_correct / total:.3f}")
