"""ReduceLROnPlateau and an EarlyStopping class; the best checkpoint is saved and reloaded at the end."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(3407)


class EarlyStopping:
    """Early stops the training if validation loss doesn't improve after a given patience."""
    def __init__(self, patience=7, verbose=False, delta=0, path='best.pt'):
        self.patience = patience
        self.verbose = verbose
        self.counter = 0
        self.best_score = None
        self.early_stop = False
        self.val_loss_min = np.inf
        self.delta = delta
        self.path = path

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
        elif score < self.best_score + self.delta:
            self.counter += 1
            print(f'EarlyStopping counter: {self.counter} out of {self.patience}')
            if self.counter >= self.patience:
                self.early_stop = True
        else:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
            self.counter = 0

    def save_checkpoint(self, val_loss, model):
        if self.verbose:
            print(f'Validation loss decreased ({self.val_loss_min:.6f} --> {val_loss:.6f}).  Saving model ...')
        torch.save(model.state_dict(), self.path)
        self.val_loss_min = val_loss


# little data and a large model, so that it overfits
x = torch.randn(130, 12)
y = (x[:, 0] + 0.5 * x[:, 1] ** 2 + torch.randn(130)).unsqueeze(1)
train_loader = DataLoader(TensorDataset(x[:70], y[:70]), batch_size=16, shuffle=True)
valid_loader = DataLoader(TensorDataset(x[70:], y[70:]), batch_size=16)

model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='min', factor=0.5, patience=1)
early_stopping = EarlyStopping(patience=4, verbose=True)

for epoch in range(1, 26):
    train_losses, valid_losses = [], []
    model.train()
    for data, target in train_loader:
        optimizer.zero_grad()
        loss = criterion(model(data), target)
        loss.backward()
        optimizer.step()
        train_losses.append(loss.item())
    model.eval()
    for data, target in valid_loader:
        with torch.no_grad():
            loss = criterion(model(data), target)
        valid_losses.append(loss.item())
    train_loss, valid_loss = np.average(train_losses), np.average(valid_losses)
    print(f'[{epoch:>2}/25] train_loss: {train_loss:.5f} valid_loss: {valid_loss:.5f} '
          f'lr: {optimizer.param_groups[0]["lr"]:.5f}')
    scheduler.step(valid_loss)
    early_stopping(valid_loss, model)
    if early_stopping.early_stop:
        print("Early stopping")
        break

# load the last checkpoint with the best model
model.load_state_dict(torch.load('best.pt'))
model.eval()
with torch.no_grad():
    preds = torch.cat([model(data) for data, _ in valid_loader])
print('valid mse of the best model', criterion(preds, y[70:]).item())
