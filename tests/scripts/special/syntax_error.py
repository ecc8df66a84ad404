"""A script that does not parse: a missing colon and an unclosed bracket."""
import torch
import torch.nn as nn

model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for epoch in range(3)
    x = torch.randn(10, 3)
    loss = (model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
