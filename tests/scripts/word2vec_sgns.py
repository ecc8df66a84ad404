"""word2vec skip-gram with negative sampling and subsampled noise words drawn in the loop."""
import random
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(5)
torch.manual_seed(5)

templates = ["the king rules the land", "the queen rules the land", "the dog chases the cat",
             "the cat chases the mouse", "a king loves a queen", "a dog loves a bone", "the mouse eats the cheese"]
corpus = " ".join(random.choice(templates) for _ in range(40)).split()
counts = Counter(corpus)
vocab = sorted(counts)
word2idx = {w: i for i, w in enumerate(vocab)}
ids = [word2idx[w] for w in corpus]

freq = torch.tensor([counts[w] for w in vocab], dtype=torch.float)
noise_dist = (freq / freq.sum()) ** 0.75
noise_dist = noise_dist / noise_dist.sum()


def get_target(words, idx, window_size=3):
    R = random.randint(1, window_size)
    start = max(idx - R, 0)
    return words[start:idx] + words[idx + 1:idx + R + 1]


def get_batches(words, batch_size):
    """Create a generator of word batches as a tuple (inputs, targets)."""
    for idx in range(0, len(words), batch_size):
        x, y = [], []
        batch = words[idx:idx + batch_size]
        for ii in range(len(batch)):
            batch_x = batch[ii]
            batch_y = get_target(batch, ii)
            y.extend(batch_y)
            x.extend([batch_x] * len(batch_y))
        yield torch.LongTensor(x), torch.LongTensor(y)


class SkipGramNeg(nn.Module):
    def __init__(self, n_vocab, n_embed):
        super().__init__()
        self.in_embed = nn.Embedding(n_vocab, n_embed)
        self.out_embed = nn.Embedding(n_vocab, n_embed)
        self.in_embed.weight.data.uniform_(-0.5, 0.5)
        self.out_embed.weight.data.uniform_(-0.5, 0.5)

    def forward(self, inputs, outputs, noise):
        v = self.in_embed(inputs)                                # (B, D)
        u = self.out_embed(outputs)                              # (B, D)
        n = self.out_embed(noise)                                # (B, K, D)
        out_loss = F.logsigmoid((u * v).sum(1))
        noise_loss = F.logsigmoid(-torch.bmm(n, v.unsqueeze(2)).squeeze(2)).sum(1)
        return -(out_loss + noise_loss).mean()


model = SkipGramNeg(len(vocab), 12)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
steps = 0
for e in range(6):
    epoch_losses = []
    for inputs, targets in get_batches(ids, 37):
        steps += 1
        noise_words = torch.multinomial(noise_dist, inputs.shape[0] * 4, replacement=True).view(-1, 4)
        loss = model(inputs, targets, noise_words)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        epoch_losses.append(loss.item())
    print(f"Epoch: {e + 1}/6  steps {steps}  Loss: {sum(epoch_losses) / len(epoch_losses):.4f}")

emb = F.normalize(model.in_embed.weight.data, dim=1)
nearest = (emb @ emb[word2idx["king"]]).topk(3).indices.tolist()
print("king:", [vocab[i] for i in nearest])
