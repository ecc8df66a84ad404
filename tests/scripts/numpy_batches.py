"""Kaggle-style tabular model: NumPy arrays shuffled and turned to tensors inside the loop."""
import numpy as np
import torch
import torch.nn as nn

SEED = 2021
np.random.seed(SEED)
torch.manual_seed(SEED)

BATCH_SIZE = 50
EPOCHS = 6

# fake "house prices"
N = 333
area = np.random.uniform(30, 200, N)
rooms = np.random.randint(1, 7, N)
age = np.random.uniform(0, 60, N)
dist = np.random.exponential(5, N)
price = 2.5 * area + 20 * rooms - 0.8 * age - 4 * dist + np.random.normal(0, 10, N)

X = np.column_stack([area, rooms, age, dist]).astype(np.float32)
y = price.astype(np.float32).reshape(-1, 1)
X = (X - X.mean(0)) / X.std(0)
y = (y - y.mean()) / y.std()
X_train, X_valid = X[:270], X[270:]
y_train, y_valid = y[:270], y[270:]

model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
criterion = nn.MSELoss()

for epoch in range(EPOCHS):
    model.train()
    order = np.arange(len(X_train))
    np.random.shuffle(order)
    losses = []
    for start in range(0, len(order), BATCH_SIZE):
        batch = order[start:start + BATCH_SIZE]
        inputs = torch.from_numpy(X_train[batch])
        targets = torch.from_numpy(y_train[batch])

        preds = model(inputs)
        loss = criterion(preds, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    model.eval()
    with torch.no_grad():
        valid_preds = model(torch.from_numpy(X_valid)).numpy()
    rmse = np.sqrt(np.mean((valid_preds - y_valid) ** 2))
    print(f'Epoch {epoch}: train {np.mean(losses):.5f}  valid rmse {rmse:.5f}')

np.save('valid_preds.npy', valid_preds)
