"""Flickr8k as it is handed out: one file of captions, three lists of images."""

from pathlib import Path

from features import make_features
from vocabulary import clean

LISTS = {"train": "trainImages", "dev": "devImages", "test": "testImages"}


def load_flickr8k(folder, features):
    """Return, for each split, the images' captions and features.

    Args:
        folder: With `Flickr8k.token.txt` and `Flickr_8k.*Images.txt`, perhaps an image folder.
        features: "auto", "vgg16" or "surrogate".

    Returns:
        For "train", "dev" and "test": a list of each image's captions (lists of words), and an
        array with a row for each image.
    """
    folder = Path(folder)
    every_caption = read_captions(folder / "Flickr8k.token.txt")
    splits = {
        split: (folder / f"Flickr_8k.{name}.txt").read_text().split()
        for split, name in LISTS.items()
    }
    captions = {name: every_caption[name] for names in splits.values() for name in names}
    array = make_features(features, folder, captions, splits["train"])
    rows = {name: row for row, name in enumerate(captions)}
    return {
        split: ([captions[name] for name in names], array[[rows[name] for name in names]])
        for split, names in splits.items()
    }


def read_captions(file):
    """Return the cleaned captions of each image; a line is `NAME.jpg#2<tab>A dog runs .`"""
    captions = {}
    for line in file.read_text().splitlines():
        name, _, text = line.partition("\t")
        captions.setdefault(name.partition("#")[0], []).append(clean(text))
    return captions
