"""Hogwild: several processes update one shared model without locks, through torch.multiprocessing."""
import torch
import torch.multiprocessing as mp
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


def train(rank, model, dataset, epochs=3):
    torch.manual_seed(1 + rank)
    loader = DataLoader(dataset, batch_size=9, shuffle=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"process {rank} epoch {epoch} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(1)
    x = torch.randn(100, 4)
    dataset = TensorDataset(x, x @ torch.randn(4, 1))
    model = nn.Linear(4, 1)
    model.share_memory()  # gradients are allocated lazily, so they are not shared here
    mp.set_start_method("fork")
    processes = []
    for rank in range(2):
        p = mp.Process(target=train, args=(rank, model, dataset))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
    print("final loss", nn.functional.mse_loss(model(x), dataset.tensors[1]).item())
