"""Anchor, positive, negative drawn in __getitem__; nn.TripletMarginLoss (no seed)."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import Dataset, DataLoader


class TripletDataset(Dataset):
    def __init__(self, n_classes=5, n=70):
        self.centers = np.random.randn(n_classes, 10).astype(np.float32)
        self.y = np.random.randint(0, n_classes, n)
        self.x = self.centers[self.y] + 0.7 * np.random.randn(n, 10).astype(np.float32)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        anchor, label = self.x[i], self.y[i]
        pos = np.random.choice(np.where(self.y == label)[0])
        neg = np.random.choice(np.where(self.y != label)[0])
        return anchor, self.x[pos], self.x[neg]


model = nn.Sequential(nn.Linear(10, 16), nn.PReLU(), nn.Linear(16, 4))
criterion = nn.TripletMarginLoss(margin=1.0, p=2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TripletDataset(), batch_size=11, shuffle=True)

for epoch in range(6):
    running_loss = []
    for step, (anchor_img, positive_img, negative_img) in enumerate(loader):
        optimizer.zero_grad()
        anchor_out = model(anchor_img)
        positive_out = model(positive_img)
        negative_out = model(negative_img)
        loss = criterion(anchor_out, positive_out, negative_out)
        loss.backward()
        optimizer.step()
        running_loss.append(loss.cpu().detach().numpy())
    print("Epoch: {}/{} - Loss: {:.4f}".format(epoch + 1, 6, np.mean(running_loss)))
