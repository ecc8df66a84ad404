"""The logging module to a file and to the console, and metrics kept as JSON lines and a final JSON file."""
import json
import logging
import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

OUT = Path("outputs")
OUT.mkdir(exist_ok=True)

logger = logging.getLogger(__name__)
logging.basicConfig(
    level=logging.INFO,
    format="%(levelname)s:%(message)s",
    handlers=[logging.FileHandler(OUT / "train.log", mode="w"), logging.StreamHandler(sys.stdout)],
)

config = {"lr": 0.02, "batch_size": 23, "epochs": 5, "hidden": 24, "seed": 90}


def train_one_epoch(model, loader, optimizer, loss_fn):
    model.train()
    meter = {"loss": 0.0, "n": 0}
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
        meter["loss"] += loss.item() * inputs.shape[0]
        meter["n"] += inputs.shape[0]
    return meter["loss"] / meter["n"]


def main(cfg):
    torch.manual_seed(cfg["seed"])
    logger.info("config: %s", json.dumps(cfg))
    x = torch.rand(150, 3)
    y = torch.stack([x.prod(1), x.sum(1)], dim=1)
    loader = DataLoader(TensorDataset(x, y), batch_size=cfg["batch_size"], shuffle=True)
    model = nn.Sequential(nn.Linear(3, cfg["hidden"]), nn.ReLU(), nn.Linear(cfg["hidden"], 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg["lr"])
    history = []
    with (OUT / "metrics.jsonl").open("w") as stream:
        for epoch in range(cfg["epochs"]):
            loss = train_one_epoch(model, loader, optimizer, nn.MSELoss())
            logger.info("epoch %d loss %.5f", epoch, loss)
            history.append(loss)
            stream.write(json.dumps({"epoch": epoch, "loss": loss}) + "\n")
    (OUT / "metrics.json").write_text(json.dumps({"best": min(history), "history": history}, indent=2))
    torch.save(model.state_dict(), OUT / "model.pt")


if __name__ == "__main__":
    main(config)
