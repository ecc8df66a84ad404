"""Saves a checkpoint every epoch and resumes from the newest one when it exists."""
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

CHECKPOINT_DIR = "checkpoints"
LAST = os.path.join(CHECKPOINT_DIR, "last.pt")
EPOCHS = 5


def get_data():
    g = torch.Generator().manual_seed(0)
    x = torch.randn(134, 10, generator=g)
    y = (x[:, 0] - x[:, 1] + 0.3 * torch.randn(134, generator=g) > 0).float().unsqueeze(1)
    return TensorDataset(x, y)


def save_checkpoint(state, filename=LAST):
    print("=> Saving checkpoint")
    torch.save(state, filename)


def load_checkpoint(filename, model, optimizer, scheduler):
    print("=> Loading checkpoint")
    checkpoint = torch.load(filename)
    model.load_state_dict(checkpoint["state_dict"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    torch.set_rng_state(checkpoint["rng"])
    return checkpoint["epoch"] + 1, checkpoint["history"]


def main():
    torch.manual_seed(0)
    os.makedirs(CHECKPOINT_DIR, exist_ok=True)
    model = nn.Sequential(nn.Linear(10, 20), nn.Dropout(0.1), nn.ReLU(), nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    criterion = nn.BCEWithLogitsLoss()
    loader = DataLoader(get_data(), batch_size=25, shuffle=True)

    start_epoch, history = 0, []
    if os.path.exists(LAST):
        start_epoch, history = load_checkpoint(LAST, model, optimizer, scheduler)

    for epoch in range(start_epoch, EPOCHS):
        losses = []
        for x, y in loader:
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        history.append(sum(losses) / len(losses))
        print(f"Mean loss of epoch {epoch}: {history[-1]:.4f}")
        save_checkpoint({
            "epoch": epoch,
            "state_dict": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "rng": torch.get_rng_state(),
            "history": history,
        })


if __name__ == "__main__":
    main()
