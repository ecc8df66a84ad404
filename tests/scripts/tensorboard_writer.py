"""Logs losses, histograms of weights and the learning rate to TensorBoard with SummaryWriter."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(18)
writer = SummaryWriter(log_dir="runs/exp1")

x = torch.randn(161, 6)
y = (x.pow(2).sum(1) > 5.5).long()
train_loader = DataLoader(TensorDataset(x[:125], y[:125]), batch_size=24, shuffle=True)
val_loader = DataLoader(TensorDataset(x[125:], y[125:]), batch_size=24)

model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)

global_step = 0
for epoch in range(5):
    model.train()
    for xb, yb in train_loader:
        loss = F.cross_entropy(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("train/loss", loss.item(), global_step)
        global_step += 1
    writer.add_scalar("train/lr", scheduler.get_last_lr()[0], epoch)
    scheduler.step()

    model.eval()
    val_loss, correct, n = 0.0, 0, 0
    with torch.no_grad():
        for xb, yb in val_loader:
            out = model(xb)
            val_loss += F.cross_entropy(out, yb, reduction="sum").item()
            correct += out.argmax(1).eq(yb).sum().item()
            n += len(yb)
    writer.add_scalars("val", {"loss": val_loss / n, "acc": correct / n}, epoch)
    for name, p in model.named_parameters():
        writer.add_histogram(name, p, epoch)
    print(f"epoch {epoch} train(last) {loss.item():.4f} val {val_loss / n:.4f} acc {correct / n:.3f}")

writer.close()
