"""Seq2seq with additive attention and random teacher forcing: learn to reverse sequences of digits."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

random.seed(1234)
torch.manual_seed(1234)

PAD, SOS, EOS = 0, 1, 2
VOCAB = 9


def make_pairs(n):
    pairs = []
    for _ in range(n):
        seq = [random.randint(3, VOCAB - 1) for _ in range(random.randint(2, 4))]
        pairs.append((torch.tensor(seq + [EOS]), torch.tensor([SOS] + seq[::-1] + [EOS])))
    return pairs


def collate(batch):
    src, trg = zip(*batch)
    return pad_sequence(src, padding_value=PAD), pad_sequence(trg, padding_value=PAD)    # (T, B)


class Encoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.rnn = nn.GRU(emb, hid)

    def forward(self, src):
        return self.rnn(self.embedding(src))


class Attention(nn.Module):
    def __init__(self, hid):
        super().__init__()
        self.attn = nn.Linear(2 * hid, hid)
        self.v = nn.Linear(hid, 1, bias=False)

    def forward(self, hidden, encoder_outputs, mask):
        hidden = hidden.unsqueeze(0).expand(encoder_outputs.size(0), -1, -1)
        energy = torch.tanh(self.attn(torch.cat((hidden, encoder_outputs), dim=2)))
        attention = self.v(energy).squeeze(2).masked_fill(mask == 0, -1e10)              # (T, B)
        return F.softmax(attention, dim=0)


class Decoder(nn.Module):
    def __init__(self, emb, hid):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, emb, padding_idx=PAD)
        self.attention = Attention(hid)
        self.rnn = nn.GRU(emb + hid, hid)
        self.fc_out = nn.Linear(2 * hid, VOCAB)

    def forward(self, input, hidden, encoder_outputs, mask):
        embedded = self.embedding(input.unsqueeze(0))
        a = self.attention(hidden[0], encoder_outputs, mask).unsqueeze(2)
        context = (a * encoder_outputs).sum(0, keepdim=True)
        output, hidden = self.rnn(torch.cat((embedded, context), dim=2), hidden)
        return self.fc_out(torch.cat((output, context), dim=2).squeeze(0)), hidden


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, src, trg, teacher_forcing_ratio=0.5):
        trg_len, batch_size = trg.shape
        outputs = torch.zeros(trg_len, batch_size, VOCAB)
        encoder_outputs, hidden = self.encoder(src)
        mask = src != PAD
        input = trg[0, :]
        for t in range(1, trg_len):
            output, hidden = self.decoder(input, hidden, encoder_outputs, mask)
            outputs[t] = output
            # decide if we are going to use teacher forcing or not
            teacher_force = random.random() < teacher_forcing_ratio
            top1 = output.argmax(1)
            input = trg[t] if teacher_force else top1
        return outputs


model = Seq2Seq(Encoder(12, 24), Decoder(12, 24))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
train_iter = DataLoader(make_pairs(125), batch_size=14, shuffle=True, collate_fn=collate)
valid_iter = DataLoader(make_pairs(30), batch_size=14, collate_fn=collate)

for epoch in range(5):
    model.train()
    epoch_loss = 0
    for src, trg in train_iter:
        optimizer.zero_grad()
        output = model(src, trg)
        loss = criterion(output[1:].view(-1, VOCAB), trg[1:].view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        epoch_loss += loss.item()

    model.eval()
    valid_loss = 0
    with torch.no_grad():
        for src, trg in valid_iter:
            output = model(src, trg, 0)  # turn off teacher forcing
            valid_loss += criterion(output[1:].view(-1, VOCAB), trg[1:].view(-1)).item()
    print(f'Epoch: {epoch + 1:02} | Train Loss: {epoch_loss / len(train_iter):.3f} '
          f'| Val. Loss: {valid_loss / len(valid_iter):.3f}')
