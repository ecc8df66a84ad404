"""Gradient accumulation over four small batches, with a leftover group at the end of the epoch."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(64)

accum_iter = 4
batch_size = 7
epochs = 4

x = torch.randn(193, 10)
w = torch.randn(10, 5)
y = (x @ w).argmax(dim=1)
data_loader = DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=True)

model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 5))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)

for epoch in range(epochs):
    epoch_loss = 0.0
    optimizer.zero_grad()
    # batch accumulation parameter
    for batch_idx, (inputs, labels) in enumerate(data_loader):
        # passes and weights update
        with torch.set_grad_enabled(True):
            preds = model(inputs)
            loss = criterion(preds, labels)

            # normalize loss to account for batch accumulation
            loss = loss / accum_iter

            # backward pass
            loss.backward()
            epoch_loss += loss.item() * accum_iter

            # weights update
            if ((batch_idx + 1) % accum_iter == 0) or (batch_idx + 1 == len(data_loader)):
                optimizer.step()
                optimizer.zero_grad()
    print(f"epoch {epoch}: {epoch_loss / len(data_loader):.4f}")
