"""Logistic regression from scratch: raw weights and bias tensors, after the 'What is torch.nn really?' tutorial (no seed)."""
import math

import torch

# fake MNIST: ten templates of 49 pixels
templates = torch.rand(10, 49)
y_train = torch.randint(0, 10, (430,))
x_train = templates[y_train] + 0.2 * torch.randn(430, 49)

n, c = x_train.shape
weights = torch.randn(49, 10) / math.sqrt(49)
weights.requires_grad_()
bias = torch.zeros(10, requires_grad=True)


def log_softmax(x):
    return x - x.exp().sum(-1).log().unsqueeze(-1)


def model(xb):
    return log_softmax(xb @ weights + bias)


def nll(input, target):
    return -input[range(target.shape[0]), target].mean()


loss_func = nll


def accuracy(out, yb):
    preds = torch.argmax(out, dim=1)
    return (preds == yb).float().mean()


bs = 64
lr = 0.5
epochs = 4

print("before:", loss_func(model(x_train), y_train).item(), accuracy(model(x_train), y_train).item())

for epoch in range(epochs):
    for i in range((n - 1) // bs + 1):
        start_i = i * bs
        end_i = start_i + bs
        xb = x_train[start_i:end_i]
        yb = y_train[start_i:end_i]
        pred = model(xb)
        loss = loss_func(pred, yb)

        loss.backward()
        with torch.no_grad():
            weights -= weights.grad * lr
            bias -= bias.grad * lr
            weights.grad.zero_()
            bias.grad.zero_()
    print(epoch, loss.item())

print("after:", loss_func(model(x_train), y_train).item(), accuracy(model(x_train), y_train).item())
