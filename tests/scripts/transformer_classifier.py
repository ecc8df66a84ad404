"""nn.TransformerEncoder text classifier with positional encoding and padding mask, warm-up schedule per step."""
import math

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
VOCAB, MAXLEN, CLASSES = 20, 10, 3

tokens = torch.randint(4, VOCAB, (140, MAXLEN))
labels = torch.randint(0, CLASSES, (140,))
lengths = torch.randint(4, MAXLEN + 1, (140,))
tokens[torch.arange(140), torch.randint(0, 4, (140,))] = labels + 1       # the clue
tokens[torch.arange(MAXLEN)[None, :] >= lengths[:, None]] = 0            # padding
train_loader = DataLoader(TensorDataset(tokens[:110], labels[:110]), batch_size=13, shuffle=True)
valid_loader = DataLoader(TensorDataset(tokens[110:], labels[110:]), batch_size=13)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 50):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(1, max_len, d_model)
        pe[0, :, 0::2] = torch.sin(position * div_term)
        pe[0, :, 1::2] = torch.cos(position * div_term)
        self.register_buffer('pe', pe)

    def forward(self, x):
        x = x + self.pe[:, :x.size(1)]
        return self.dropout(x)


class TransformerClassifier(nn.Module):
    def __init__(self, d_model=16, nhead=2, nlayers=1):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, d_model, padding_idx=0)
        self.pos = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, dim_feedforward=32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, nlayers, enable_nested_tensor=False)
        self.out = nn.Linear(d_model, CLASSES)

    def forward(self, src):
        pad = src == 0
        h = self.encoder(self.pos(self.embedding(src)), src_key_padding_mask=pad)
        h = h.masked_fill(pad.unsqueeze(-1), 0).sum(1) / (~pad).sum(1, keepdim=True)
        return self.out(h)


model = TransformerClassifier()
optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
warmup = 10
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: 0.05 * min((s + 1) ** -0.5, (s + 1) * warmup ** -1.5))
criterion = nn.CrossEntropyLoss()

for epoch in range(5):
    model.train()
    total_loss = 0.
    for src, y in train_loader:
        loss = criterion(model(src), y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        total_loss += loss.item()

    model.eval()
    correct = 0
    with torch.no_grad():
        for src, y in valid_loader:
            correct += (model(src).argmax(1) == y).sum().item()
    print(f'| epoch {epoch} | lr {scheduler.get_last_lr()[0]:.5f} | loss {total_loss / len(train_loader):5.3f} '
          f'| valid acc {correct / len(valid_loader.dataset):.3f}')
