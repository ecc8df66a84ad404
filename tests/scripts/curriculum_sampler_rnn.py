"""A custom index sampler (easy sequences first, set_epoch) feeding a plain nn.RNN with its own h0."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

torch.manual_seed(52)


class CurriculumSampler(Sampler):
    """Shuffles inside the easiest part of the data; the part grows every epoch."""

    def __init__(self, difficulty, start=0.4, growth=0.2):
        self.order = difficulty.argsort().tolist()
        self.start, self.growth = start, growth
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return int(len(self.order) * min(1.0, self.start + self.growth * self.epoch))

    def __iter__(self):
        g = torch.Generator()
        g.manual_seed(self.epoch)
        return iter([self.order[i] for i in torch.randperm(len(self), generator=g).tolist()])


class Net(nn.Module):
    def __init__(self, hidden=20, layers=1):
        super().__init__()
        self.hidden, self.layers = hidden, layers
        self.rnn = nn.RNN(1, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, 1)

    def forward(self, x):
        h0 = torch.zeros(self.layers, x.size(0), self.hidden)
        out, _ = self.rnn(x, h0)
        return self.fc(out[:, -1])


noise = torch.rand(156) * 0.5
steps = torch.sign(torch.randn(156, 8))
x = (steps + noise[:, None] * torch.randn(156, 8)).unsqueeze(-1)
y = steps.mean(1, keepdim=True)

sampler = CurriculumSampler(noise)
loader = DataLoader(TensorDataset(x, y), batch_size=11, sampler=sampler)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(5):
    sampler.set_epoch(epoch)
    se, n = 0.0, 0
    for xb, yb in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(xb), yb)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        se += loss.item() * len(xb)
        n += len(xb)
    print(f"epoch {epoch}: {n} samples, mse {se / n:.4f}")
