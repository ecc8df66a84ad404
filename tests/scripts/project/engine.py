"""The training and evaluation loops of the small project."""
import torch


def train_one_epoch(model, criterion, data_loader, optimizer, device, epoch, scheduler=None, print_freq=4):
    model.train()
    total_loss, n = 0.0, 0
    for i, (image, target) in enumerate(data_loader):
        image, target = image.to(device), target.to(device)
        output = model(image)
        loss = criterion(output, target)

        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()

        total_loss += loss.item() * image.size(0)
        n += image.size(0)
        if i % print_freq == 0:
            print(f"Epoch: [{epoch}] [{i}/{len(data_loader)}] loss: {loss.item():.4f} "
                  f"lr: {optimizer.param_groups[0]['lr']:.5f}")
    return total_loss / n


@torch.inference_mode()
def evaluate(model, criterion, data_loader, device):
    model.eval()
    total_loss, correct, n = 0.0, 0, 0
    for image, target in data_loader:
        image, target = image.to(device), target.to(device)
        output = model(image)
        total_loss += criterion(output, target).item() * image.size(0)
        correct += (output.argmax(1) == target).sum().item()
        n += image.size(0)
    return total_loss / n, correct / n
