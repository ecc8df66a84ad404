"""Five-fold cross validation on wine with SubsetRandomSampler, a fresh model each fold."""
import numpy as np
import torch
import torch.nn as nn
from sklearn.datasets import load_wine
from sklearn.model_selection import KFold
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

torch.manual_seed(42)

wine = load_wine()
X = torch.tensor((wine.data - wine.data.mean(0)) / wine.data.std(0), dtype=torch.float32)
y = torch.tensor(wine.target)
dataset = TensorDataset(X, y)

k_folds = 5
num_epochs = 3
results = {}


def reset_weights(m):
    for layer in m.children():
        if hasattr(layer, 'reset_parameters'):
            layer.reset_parameters()


network = nn.Sequential(nn.Linear(13, 24), nn.ReLU(), nn.Linear(24, 3))
loss_function = nn.CrossEntropyLoss()
kfold = KFold(n_splits=k_folds, shuffle=True, random_state=0)

for fold, (train_ids, test_ids) in enumerate(kfold.split(dataset)):
    print(f'FOLD {fold}')
    print('--------------------------------')
    train_subsampler = SubsetRandomSampler(train_ids)
    test_subsampler = SubsetRandomSampler(test_ids)
    trainloader = DataLoader(dataset, batch_size=15, sampler=train_subsampler)
    testloader = DataLoader(dataset, batch_size=15, sampler=test_subsampler)

    network.apply(reset_weights)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-2)

    for epoch in range(num_epochs):
        current_loss = 0.0
        for i, data in enumerate(trainloader, 0):
            inputs, targets = data
            optimizer.zero_grad()
            outputs = network(inputs)
            loss = loss_function(outputs, targets)
            loss.backward()
            optimizer.step()
            current_loss += loss.item()
        print('Loss after epoch %d: %.3f' % (epoch + 1, current_loss / len(trainloader)))

    correct, total = 0, 0
    with torch.no_grad():
        for inputs, targets in testloader:
            _, predicted = torch.max(network(inputs).data, 1)
            total += targets.size(0)
            correct += (predicted == targets).sum().item()
    results[fold] = 100.0 * (correct / total)
    print('Accuracy for fold %d: %.2f %%' % (fold, results[fold]))

print('Average: %.2f %%' % np.mean(list(results.values())))
