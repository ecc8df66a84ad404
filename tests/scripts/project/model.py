"""The network of the small project."""
import torch.nn as nn


class ConvNet(nn.Module):
    """Two convolutions with BatchNorm and a linear head."""

    def __init__(self, num_classes: int, width: int = 8, dropout: float = 0.1):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(8 * width, num_classes))

    def forward(self, x):
        return self.classifier(self.features(x))


def build_model(name: str, num_classes: int) -> nn.Module:
    models = {"convnet": ConvNet}
    return models[name](num_classes)
