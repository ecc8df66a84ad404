"""Toy OCR with a CRNN and CTC loss; targets of different lengths concatenated in the collate_fn."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(20)
BLANK = 0
NUM_SYMBOLS = 4                      # symbols 1..4
GLYPHS = torch.randn(NUM_SYMBOLS + 1, 8, 4)


class TextLines(Dataset):
    def __init__(self, n):
        self.samples = []
        for _ in range(n):
            length = int(torch.randint(2, 5, (1,)))
            text = torch.randint(1, NUM_SYMBOLS + 1, (length,))
            image = torch.cat([GLYPHS[c] for c in text], dim=1)
            image = torch.nn.functional.pad(image, (0, 16 - image.size(1)))
            self.samples.append((image + 0.1 * torch.randn(8, 16), text))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i]


def collate(batch):
    images = torch.stack([img for img, _ in batch])
    targets = torch.cat([t for _, t in batch])
    target_lengths = torch.tensor([len(t) for _, t in batch])
    return images, targets, target_lengths


class CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(8, 24, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2))
        self.rnn = nn.GRU(24, 24, bidirectional=True)
        self.fc = nn.Linear(48, NUM_SYMBOLS + 1)

    def forward(self, x):
        x = self.conv(x).permute(2, 0, 1)        # (T, N, C)
        x, _ = self.rnn(x)
        return self.fc(x).log_softmax(2)


def greedy_decode(log_probs):
    out = []
    for path in log_probs.argmax(2).t().tolist():
        text, prev = [], BLANK
        for p in path:
            if p != prev and p != BLANK:
                text.append(p)
            prev = p
        out.append(text)
    return out


train_loader = DataLoader(TextLines(99), batch_size=13, shuffle=True, collate_fn=collate)
model = CRNN()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
ctc_loss = nn.CTCLoss(blank=BLANK, zero_infinity=True)

for epoch in range(8):
    total, exact, n = 0.0, 0, 0
    for images, targets, target_lengths in train_loader:
        log_probs = model(images)
        input_lengths = torch.full((images.size(0),), log_probs.size(0), dtype=torch.long)
        loss = ctc_loss(log_probs, targets, input_lengths, target_lengths)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        total += loss.item() * images.size(0)
        n += images.size(0)
        truth = [t.tolist() for t in targets.split(target_lengths.tolist())]
        exact += sum(a == b for a, b in zip(greedy_decode(log_probs.detach()), truth))
    print(f"epoch {epoch}: ctc {total / n:.4f} exact match {exact / n:.3f}")
