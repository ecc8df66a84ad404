"""Random augmentation in __getitem__ with num_workers=2 and a CNN with BatchNorm."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class RandomFlip:
    def __call__(self, img):
        return img.flip(-1) if torch.rand(1).item() < 0.5 else img


class RandomShift:
    def __init__(self, max_shift=1):
        self.max_shift = max_shift

    def __call__(self, img):
        dx, dy = torch.randint(-self.max_shift, self.max_shift + 1, (2,)).tolist()
        return torch.roll(img, (dy, dx), dims=(-2, -1))


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, x):
        for t in self.transforms:
            x = t(x)
        return x


class Stripes(Dataset):
    """Horizontal stripes, vertical stripes, or a checkerboard."""

    def __init__(self, n, transform=None):
        g = torch.Generator().manual_seed(n)
        i = torch.arange(8)
        base = torch.stack([(i[:, None] % 2).expand(8, 8), (i[None, :] % 2).expand(8, 8), (i[:, None] + i) % 2])
        self.y = torch.randint(0, 3, (n,), generator=g)
        self.x = base[self.y].unsqueeze(1).float() + 0.7 * torch.randn(n, 1, 8, 8, generator=g)
        self.transform = transform

    def __len__(self):
        return len(self.y)

    def __getitem__(self, idx):
        x = self.x[idx]
        if self.transform is not None:
            x = self.transform(x)
        return x, self.y[idx]


class SmallCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.c2 = nn.Conv2d(6, 12, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(12)
        self.fc = nn.Linear(12, 3)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.c1(x))), 2)
        x = F.relu(self.bn2(self.c2(x)))
        return self.fc(x.mean(dim=(2, 3)))


if __name__ == "__main__":
    torch.manual_seed(6)
    train_loader = DataLoader(Stripes(107, Compose([RandomFlip(), RandomShift()])), batch_size=10,
                              shuffle=True, num_workers=2)
    test_loader = DataLoader(Stripes(45), batch_size=20, num_workers=0)
    model = SmallCNN()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        model.train()
        for i, (images, labels) in enumerate(train_loader):
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if (i + 1) % 4 == 0:
                print(f"Epoch [{epoch + 1}/2], Step [{i + 1}/{len(train_loader)}], Loss: {loss.item():.4f}")
        model.eval()
        with torch.no_grad():
            correct = sum((model(x).argmax(1) == y).sum().item() for x, y in test_loader)
        print(f"Test accuracy: {100 * correct / len(test_loader.dataset):.1f}%")
