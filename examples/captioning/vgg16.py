"""Features of image files by VGG16: the 4096 values before its last layer."""

import importlib.util
from pathlib import Path

import numpy as np
import torch

CACHE = "vgg16.npy"  # in the data folder: a row an image, sorted by name
IMAGE_FOLDERS = ("Flicker8k_Dataset", "Flickr8k_Dataset", "Images", "images")


def missing_for_vgg16(folder):
    """Return what VGG16's features lack, in words with the remedy; empty if nothing."""
    if (folder / CACHE).exists():
        return ""
    if image_folder(folder) is None:
        return f"no folder of images in {folder}: unpack them there, as {IMAGE_FOLDERS[0]}"
    if importlib.util.find_spec("torchvision") is None:
        return "torchvision is not installed: pip install torchvision"
    if not weights_file().exists():
        return (
            f"VGG16's weights are not at {weights_file()}: "
            "python -c 'from torchvision.models import vgg16; vgg16(weights=\"IMAGENET1K_V1\")'"
        )
    return ""


def image_folder(folder):
    """Return the folder of the images, or None."""
    return next((folder / name for name in IMAGE_FOLDERS if (folder / name).is_dir()), None)


def weights_file():
    """Return where torchvision keeps VGG16's weights once they are downloaded."""
    from torchvision.models import VGG16_Weights

    url = VGG16_Weights.IMAGENET1K_V1.url
    return Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]


def vgg16_features(folder, names):
    """Return the features of images, in the order of `names`; made once and kept in the folder."""
    cache = folder / CACHE
    ordered = sorted(names)
    if cache.exists():
        features = np.load(cache)
    else:
        features = run_vgg16(image_folder(folder), ordered)
        np.save(cache, features)
    if len(features) != len(names):
        raise SystemExit(f"{cache} is of other images than the lists: delete it")
    rows = {name: row for row, name in enumerate(ordered)}
    return features[[rows[name] for name in names]]


@torch.no_grad()
def run_vgg16(images, names, batch_size=64):
    """Return VGG16's features of image files, without its last layer."""
    from PIL import Image
    from torchvision.models import VGG16_Weights, vgg16

    weights = VGG16_Weights.IMAGENET1K_V1
    prepare = weights.transforms()
    model = vgg16(weights=weights)
    model.classifier = model.classifier[:5]  # up to the ReLU after the second dense layer
    model.eval()
    features = []
    for first in range(0, len(names), batch_size):
        files = [images / name for name in names[first : first + batch_size]]
        batch = torch.stack([prepare(Image.open(file).convert("RGB")) for file in files])
        features.append(model(batch).numpy())
        print(f"VGG16: {first + len(files)} of {len(names)} images")
    return np.concatenate(features)
