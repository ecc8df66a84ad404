"""`perceptron.py` for several workers, by hand: torchrun --nproc-per-node 2 perceptron_ddp.py."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--batch-size", type=int, default=256)
parser.add_argument("--lr", type=float, default=1e-3)
args = parser.parse_args()

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)

images = torch.randn(10240, 784)
labels = (images @ torch.randn(784, 10)).argmax(1)
dataset = TensorDataset(images, labels)
sampler = DistributedSampler(dataset, shuffle=True)
loader = DataLoader(dataset, batch_size=args.batch_size // world_size, sampler=sampler)

model = nn.Sequential(
    nn.Linear(784, 512),
    nn.ReLU(),
    nn.Linear(512, 512),
    nn.ReLU(),
    nn.Linear(512, 10),
)
model = DistributedDataParallel(model)
loss_fn = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

for epoch in range(args.epochs):
    model.train()
    sampler.set_epoch(epoch)
    for step, (x, y) in enumerate(loader):
        loss = loss_fn(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            mean_loss = loss.detach() / world_size
            dist.all_reduce(mean_loss)
            if rank == 0:
                print(f"epoch {epoch}  step {step:3d}  loss {mean_loss.item():.4f}")

dist.destroy_process_group()
