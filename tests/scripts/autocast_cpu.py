"""bfloat16 autocast in a decorated train function, GradScaler disabled unless there is CUDA."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

USE_AMP = torch.cuda.is_available()
DEVICE = torch.device("cuda" if USE_AMP else "cpu")


class Parity(Dataset):
    """Sign of the product of the first two inputs."""

    def __init__(self, n):
        gen = torch.Generator().manual_seed(n)
        self.x = torch.randn(n, 5, generator=gen)
        self.y = (self.x[:, 0] * self.x[:, 1] > 0).float()

    def __len__(self):
        return self.x.shape[0]

    def __getitem__(self, item):
        return {"x": self.x[item], "y": self.y[item]}


def train_fn(data_loader, model, optimizer, scaler):
    model.train()
    fin_loss = 0
    for data in data_loader:
        for k, v in data.items():
            data[k] = v.to(DEVICE)
        optimizer.zero_grad()
        with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
            logits = model(data["x"]).squeeze(1)
            loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), data["y"])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        fin_loss += loss.item()
    return fin_loss / len(data_loader)


def eval_fn(data_loader, model):
    model.eval()
    fin_outputs, fin_targets = [], []
    with torch.inference_mode():
        for data in data_loader:
            with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
                out = model(data["x"].to(DEVICE)).squeeze(1)
            fin_outputs.extend((out > 0).float().cpu().numpy().tolist())
            fin_targets.extend(data["y"].numpy().tolist())
    return sum(o == t for o, t in zip(fin_outputs, fin_targets)) / len(fin_targets)


def run():
    torch.manual_seed(5)
    train_loader = DataLoader(Parity(222), batch_size=32, shuffle=True)
    valid_loader = DataLoader(Parity(75), batch_size=32)
    model = nn.Sequential(nn.Linear(5, 24), nn.GELU(), nn.Linear(24, 1)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
    scaler = torch.amp.GradScaler(enabled=USE_AMP)
    for epoch in range(5):
        loss = train_fn(train_loader, model, optimizer, scaler)
        print(f"epoch={epoch} loss={loss:.4f} valid_acc={eval_fn(valid_loader, model):.3f}")


if __name__ == "__main__":
    run()
