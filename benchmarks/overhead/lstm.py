"""An LSTM that tells which of five generators wrote a sequence of tokens."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(nn.Module):
    def __init__(self, vocabulary, embedding=64, hidden=128, classes=5):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, tokens):
        output, (hidden, cell) = self.lstm(self.embedding(tokens))
        return self.fc(hidden[-1])


def make_data(num_samples, length=32, vocabulary=100, classes=5):
    labels = torch.randint(0, classes, (num_samples,))
    preferences = torch.rand(classes, vocabulary) ** 3
    tokens = torch.multinomial(preferences[labels], length, replacement=True)
    return TensorDataset(tokens, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()

    torch.manual_seed(0)
    loader = DataLoader(make_data(2560), batch_size=args.batch_size, shuffle=True)
    model = Classifier(vocabulary=100)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    for epoch in range(args.epochs):
        for step, (tokens, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(tokens), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch}  step {step:3d}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
