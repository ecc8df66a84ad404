"""PyTorch Lightning: the Trainer owns the loop (lightning need not be installed here)."""
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitRegressor(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


if __name__ == "__main__":
    L.seed_everything(0)
    x = torch.randn(105, 4)
    y = x.sum(1, keepdim=True)
    trainer = L.Trainer(max_epochs=3, accelerator="cpu", logger=False)
    trainer.fit(LitRegressor(), DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True))
