"""Mixup: each batch is mixed with a permutation of itself, lambda from np.random.beta."""
import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset

np.random.seed(0)
torch.manual_seed(0)


def mixup_data(x, y, alpha=1.0):
    '''Returns mixed inputs, pairs of targets, and lambda'''
    if alpha > 0:
        lam = np.random.beta(alpha, alpha)
    else:
        lam = 1
    batch_size = x.size()[0]
    index = torch.randperm(batch_size)
    mixed_x = lam * x + (1 - lam) * x[index, :]
    y_a, y_b = y, y[index]
    return mixed_x, y_a, y_b, lam


def mixup_criterion(criterion, pred, y_a, y_b, lam):
    return lam * criterion(pred, y_a) + (1 - lam) * criterion(pred, y_b)


proto = torch.randn(5, 10)
targets = torch.randint(0, 5, (235,))
inputs = proto[targets] + 0.7 * torch.randn(235, 10)
trainloader = DataLoader(TensorDataset(inputs[:185], targets[:185]), batch_size=30, shuffle=True)
testloader = DataLoader(TensorDataset(inputs[185:], targets[185:]), batch_size=30)
net = nn.Sequential(nn.Linear(10, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 5))
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)


def train(epoch):
    net.train()
    train_loss, correct, total = 0, 0, 0
    for batch_idx, (x, y) in enumerate(trainloader):
        x, y_a, y_b, lam = mixup_data(x, y, 0.4)
        outputs = net(x)
        loss = mixup_criterion(criterion, outputs, y_a, y_b, lam)
        train_loss += loss.item()
        _, predicted = torch.max(outputs.data, 1)
        total += y.size(0)
        correct += (lam * predicted.eq(y_a.data).cpu().sum().float()
                    + (1 - lam) * predicted.eq(y_b.data).cpu().sum().float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print('Epoch %d: Loss: %.3f | Acc: %.3f%% (%d/%d)'
          % (epoch, train_loss / (batch_idx + 1), 100. * correct / total, correct, total))


def test():
    net.eval()
    correct = 0
    with torch.no_grad():
        for x, y in testloader:
            correct += net(x).argmax(1).eq(y).sum().item()
    print('    test acc %.3f' % (correct / len(testloader.dataset)))


for epoch in range(4):
    train(epoch)
    test()
