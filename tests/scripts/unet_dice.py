"""A two-level U-Net for segmentation with BCE + Dice loss over the whole batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from tqdm import tqdm


class CirclesDataset(Dataset):
    def __init__(self, n, size=16, seed=0):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
        self.images, self.masks = [], []
        for _ in range(n):
            cx, cy = torch.randint(4, size - 4, (2,), generator=g).tolist()
            r = int(torch.randint(2, 5, (1,), generator=g))
            mask = (((xx - cx) ** 2 + (yy - cy) ** 2) <= r * r).float()
            self.images.append((mask + 0.4 * torch.randn(size, size, generator=g)).unsqueeze(0))
            self.masks.append(mask.unsqueeze(0))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return {"image": self.images[i], "mask": self.masks[i]}


class DoubleConv(nn.Module):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class UNet(nn.Module):
    def __init__(self, c=6):
        super().__init__()
        self.inc = DoubleConv(1, c)
        self.down1 = DoubleConv(c, 2 * c)
        self.down2 = DoubleConv(2 * c, 4 * c)
        self.up1 = nn.ConvTranspose2d(4 * c, 2 * c, 2, stride=2)
        self.conv1 = DoubleConv(4 * c, 2 * c)
        self.up2 = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.conv2 = DoubleConv(2 * c, c)
        self.outc = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(F.max_pool2d(x1, 2))
        x3 = self.down2(F.max_pool2d(x2, 2))
        x = self.conv1(torch.cat([self.up1(x3), x2], dim=1))
        x = self.conv2(torch.cat([self.up2(x), x1], dim=1))
        return self.outc(x)


def dice_loss(pred, target, smooth=1.0):
    pred = pred.contiguous().view(-1)
    target = target.contiguous().view(-1)
    intersection = (pred * target).sum()
    return 1 - (2.0 * intersection + smooth) / (pred.sum() + target.sum() + smooth)


def main():
    torch.manual_seed(0)
    train_loader = DataLoader(CirclesDataset(46), batch_size=6, shuffle=True)
    val_loader = DataLoader(CirclesDataset(13, seed=1), batch_size=6)
    model = UNet()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3, momentum=0.5)

    for epoch in range(1, 4):
        model.train()
        epoch_loss = 0
        with tqdm(total=len(train_loader.dataset), desc=f"Epoch {epoch}/3", unit="img", disable=True) as pbar:
            for batch in train_loader:
                images, true_masks = batch["image"], batch["mask"]
                masks_pred = model(images)
                loss = F.binary_cross_entropy_with_logits(masks_pred, true_masks)
                loss = loss + dice_loss(torch.sigmoid(masks_pred), true_masks)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
                pbar.update(images.shape[0])
                epoch_loss += loss.item()
        model.eval()
        inter = union = 0
        with torch.no_grad():
            for batch in val_loader:
                p = model(batch["image"]) > 0
                t = batch["mask"] > 0.5
                inter += (p & t).sum().item()
                union += (p | t).sum().item()
        print(f"epoch {epoch}: loss {epoch_loss / len(train_loader):.4f} val IoU {inter / union:.3f}")


if __name__ == "__main__":
    main()
