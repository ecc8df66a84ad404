"""`cnn.py` for several workers, by hand: torchrun --nproc-per-node 2 cnn_ddp.py."""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(32 * 7 * 7, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = self.pool(F.relu(self.conv1(x)))
        x = self.pool(F.relu(self.conv2(x)))
        x = self.dropout(torch.flatten(x, 1))
        x = F.relu(self.fc1(x))
        return self.fc2(x)


def make_data(num_samples):
    labels = torch.randint(0, 10, (num_samples,))
    patterns = torch.randn(10, 1, 28, 28)
    return TensorDataset(patterns[labels] + torch.randn(num_samples, 1, 28, 28), labels)


def train(model, loader, criterion, optimizer, epoch):
    model.train()
    loader.sampler.set_epoch(epoch)
    running_loss = 0.0
    for i, data in enumerate(loader):
        inputs, labels = data
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
        if i % 10 == 9:
            total = torch.tensor(running_loss)
            dist.all_reduce(total)
            if dist.get_rank() == 0:
                mean_loss = total.item() / dist.get_world_size() / 10
                print(f"[{epoch + 1}, {i + 1:4d}] loss: {mean_loss:.3f}")
            running_loss = 0.0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    dataset = make_data(2560)
    loader = DataLoader(
        dataset,
        batch_size=args.batch_size // dist.get_world_size(),
        sampler=DistributedSampler(dataset, shuffle=True),
    )
    model = DistributedDataParallel(Net())
    torch.manual_seed(dist.get_rank())  # another dropout mask on every worker
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(args.epochs):
        train(model, loader, criterion, optimizer, epoch)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
