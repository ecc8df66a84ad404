"""Datasets and loaders of the small project."""
import torch
from torch.utils.data import DataLoader, Dataset, random_split


class ShapesDataset(Dataset):
    """Crosses, squares and diagonals with noise; flipped at random in training."""

    def __init__(self, n: int, seed: int = 0):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(0, 3, (n,), generator=g)
        shapes = torch.zeros(3, 10, 10)
        shapes[0, 4:6, :] = shapes[0, :, 4:6] = 1
        shapes[1, 2:8, 2:8] = 1
        shapes[1, 4:6, 4:6] = 0
        shapes[2] = torch.eye(10)
        self.images = (shapes[self.labels] + 0.5 * torch.randn(n, 10, 10, generator=g)).unsqueeze(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


def build_loaders(n: int, batch_size: int, seed: int):
    dataset = ShapesDataset(n, seed)
    n_val = n // 5
    train, val = random_split(dataset, [n - n_val, n_val])
    return (DataLoader(train, batch_size=batch_size, shuffle=True),
            DataLoader(val, batch_size=2 * batch_size))
