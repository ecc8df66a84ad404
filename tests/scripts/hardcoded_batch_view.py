"""A CNN whose forward reshapes with a hard-coded batch size."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)
BATCH = 12


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3)
        self.fc1 = nn.Linear(5 * 4 * 4, 16)
        self.fc2 = nn.Linear(16, 2)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        x = x.view(BATCH, 5 * 4 * 4)      # works as long as every batch is full
        x = torch.relu(self.fc1(x))
        return self.fc2(x)


y = torch.randint(0, 2, (100,))
x = torch.randn(100, 1, 6, 6)
x[y == 1, :, :, 2:4] += 0.8

loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True, drop_last=True)
net = Net()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.5)

for epoch in range(6):
    running_loss = 0.0
    for inputs, labels in loader:
        optimizer.zero_grad()
        outputs = net(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    print(f"[{epoch + 1}] loss: {running_loss / len(loader):.3f}")
