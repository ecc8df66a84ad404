"""Fine-tuning: pretrain on one task, freeze the body, replace the head, then unfreeze the last block."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def train(model, loader, optimizer, epochs, tag):
    criterion = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        model.train()
        total, correct, loss_sum = 0, 0, 0.
        for images, labels in loader:
            optimizer.zero_grad()
            outputs = model(images)
            loss = criterion(outputs, labels)
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * labels.size(0)
            correct += (outputs.argmax(1) == labels).sum().item()
            total += labels.size(0)
        print(f"{tag} epoch {epoch}: loss {loss_sum / total:.4f}, acc {correct / total:.3f}")


shapes = torch.randn(6, 1, 7, 7)


def task(classes, n):
    labels = torch.randint(0, len(classes), (n,))
    pictures = shapes[torch.tensor(classes)[labels]] + 2.0 * torch.randn(n, 1, 7, 7)
    return DataLoader(TensorDataset(pictures, labels), batch_size=20, shuffle=True)


model = nn.Sequential()
model.add_module("block1", nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU()))
model.add_module("block2", nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.Flatten()))
model.add_module("fc", nn.Linear(72, 4))

# 1. pretraining
train(model, task([0, 1, 2, 3], 130), torch.optim.Adam(model.parameters(), lr=5e-3), 4, "pretrain")

# 2. feature extraction: only the new head learns
for param in model.parameters():
    param.requires_grad = False
model.fc = nn.Linear(model.fc.in_features, 2)  # new layers have requires_grad=True
before = model.block1[0].weight.clone()
finetune_loader = task([4, 5], 70)
train(model, finetune_loader, torch.optim.SGD(model.fc.parameters(), lr=0.05, momentum=0.9), 3, "head")
assert torch.equal(before, model.block1[0].weight)

# 3. unfreeze the last block
for param in model.block2.parameters():
    param.requires_grad = True
trainable = [p for p in model.parameters() if p.requires_grad]
print("trainable tensors:", len(trainable))
train(model, finetune_loader, torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.01), 3, "tune")
