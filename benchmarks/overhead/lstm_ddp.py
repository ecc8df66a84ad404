"""`lstm.py` for several workers, by hand: torchrun --nproc-per-node 2 lstm_ddp.py."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Classifier(nn.Module):
    def __init__(self, vocabulary, embedding=64, hidden=128, classes=5):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def forward(self, tokens):
        output, (hidden, cell) = self.lstm(self.embedding(tokens))
        return self.fc(hidden[-1])


def make_data(num_samples, length=32, vocabulary=100, classes=5):
    labels = torch.randint(0, classes, (num_samples,))
    preferences = torch.rand(classes, vocabulary) ** 3
    tokens = torch.multinomial(preferences[labels], length, replacement=True)
    return TensorDataset(tokens, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--clip", type=float, default=1.0)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    dataset = make_data(2560)
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=args.batch_size // world_size, sampler=sampler)
    model = DistributedDataParallel(Classifier(vocabulary=100))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for step, (tokens, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = criterion(model(tokens), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            if step % 10 == 0:
                mean_loss = loss.detach() / world_size
                dist.all_reduce(mean_loss)
                if rank == 0:
                    print(f"epoch {epoch}  step {step:3d}  loss {mean_loss.item():.4f}")

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
