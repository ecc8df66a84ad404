"""Linear SVM by subgradient descent: hinge loss summed over the batch and divided by C by hand."""
import torch
import torch.nn as nn

torch.manual_seed(0)
N = 178
X = torch.cat([torch.randn(N // 2, 2) + 2, torch.randn(N // 2, 2) - 2])
X = (X - X.mean(0)) / X.std(0)
Y = torch.cat([torch.ones(N // 2), -torch.ones(N // 2)])

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
C, batchsize = 0.1, 12

model.train()
for epoch in range(3):
    perm = torch.randperm(N)
    sum_loss = 0
    for i in range(0, N, batchsize):
        x = X[perm[i:i + batchsize]]
        y = Y[perm[i:i + batchsize]]
        optimizer.zero_grad()
        output = model(x).squeeze()
        weight = model.weight.squeeze()
        loss = torch.sum(torch.clamp(1 - y * output, min=0))
        loss += C * (weight.t() @ weight) / 2.0
        loss.backward()
        optimizer.step()
        sum_loss += float(loss.detach())
    print("Epoch: {:4d}\tloss: {:.5f}".format(epoch, sum_loss / N))
