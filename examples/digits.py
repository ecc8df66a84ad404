"""Classify scikit-learn's handwritten digits (8x8 pixels, ten classes) with a small CNN.

An ordinary training script: one process, nothing in it knows about reparto.

    python examples/digits.py --epochs 3
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """Two convolutions with batch normalisation, then two linear layers with dropout."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(64, 10),
        )

    def forward(self, x):
        return self.classifier(self.features(x))


def load_data(batch_size):
    """Return a shuffled training loader and a test loader."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    x_train, x_test, y_train, y_test = train_test_split(
        images, labels, test_size=0.2, random_state=0
    )
    train_loader = DataLoader(TensorDataset(x_train, y_train), batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(x_test, y_test), batch_size)
    return train_loader, test_loader


def train(model, loader, optimizer):
    """Train for one epoch; return the mean loss of a sample."""
    model.train()
    total_loss = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        total_loss += loss.item() * len(labels)
    return total_loss / len(loader.dataset)


@torch.no_grad()
def evaluate(model, loader):
    """Return the mean loss of a sample and the fraction classified correctly."""
    model.eval()
    total_loss = 0.0
    correct = 0
    for images, labels in loader:
        logits = model(images)
        total_loss += F.cross_entropy(logits, labels, reduction="sum").item()
        correct += (logits.argmax(dim=1) == labels).sum().item()
    return total_loss / len(loader.dataset), correct / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.05)
    args = parser.parse_args()

    torch.manual_seed(0)
    train_loader, test_loader = load_data(args.batch_size)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)

    for epoch in range(1, args.epochs + 1):
        train_loss = train(model, train_loader, optimizer)
        test_loss, accuracy = evaluate(model, test_loader)
        scheduler.step()
        print(
            f"epoch {epoch:2d}  train loss {train_loss:.4f}  "
            f"test loss {test_loss:.4f}  accuracy {accuracy:.2%}"
        )

    torch.save(model.state_dict(), "digits.pt")


if __name__ == "__main__":
    main()
