"""Diabetes regression with an RMSE loss (sqrt of the batch mse) and R2 by scikit-learn."""
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

torch.manual_seed(42)
np.random.seed(42)

X, y = load_diabetes(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=42)
sc = StandardScaler()
X_train = sc.fit_transform(X_train)
X_test = sc.transform(X_test)
y_mean, y_std = y_train.mean(), y_train.std()

train_ds = torch.utils.data.TensorDataset(torch.FloatTensor(X_train), torch.FloatTensor((y_train - y_mean) / y_std))
train_loader = torch.utils.data.DataLoader(train_ds, batch_size=50, shuffle=True)


class RMSELoss(nn.Module):
    def __init__(self, eps=1e-6):
        super().__init__()
        self.mse = nn.MSELoss()
        self.eps = eps

    def forward(self, yhat, y):
        return torch.sqrt(self.mse(yhat, y) + self.eps)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 32)
        self.fc2 = nn.Linear(32, 1)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x))).squeeze(1)


model = Regressor()
criterion = RMSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(6):
    model.train()
    losses = []
    for xb, yb in train_loader:
        loss = criterion(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f'epoch {epoch}: rmse {np.mean(losses):.4f}')

model.eval()
with torch.no_grad():
    pred = model(torch.FloatTensor(X_test)).numpy() * y_std + y_mean
print('test R2', round(r2_score(y_test, pred), 4))
