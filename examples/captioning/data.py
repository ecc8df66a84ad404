"""Captions as samples for training: image features, words read, words to predict."""

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from flickr8k import load_flickr8k
from scenes import draw_scenes
from vocabulary import PADDING


def load_splits(data, features, scenes):
    """Return "train", "dev" and "test", each a pair of the images' captions and features.

    Args:
        data: The folder of Flickr8k, or None for drawn scenes.
        features: How to make Flickr8k's features.
        scenes: How many scenes to draw.
    """
    if data is None:
        return draw_scenes(scenes)
    return load_flickr8k(data, features)


class CaptionDataset(Dataset):
    """One caption is one sample, with all of its positions.

    Args:
        captions: For each image, its captions as lists of words.
        features: For each image, a row.
        vocabulary: Gives the words their numbers.
    """

    def __init__(self, captions, features, vocabulary):
        self.features = torch.from_numpy(features)
        self.samples = [
            (image, torch.tensor(vocabulary.encode(caption)))
            for image, of_image in enumerate(captions)
            for caption in of_image
        ]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        image, words = self.samples[index]
        return self.features[image], words


def collate(samples):
    """Return features, the words that are read and, one further on, the words to predict.

    All captions are padded to the longest of the batch.
    """
    features, captions = zip(*samples)
    words = pad_sequence(captions, batch_first=True, padding_value=PADDING)
    return torch.stack(features), words[:, :-1], words[:, 1:]
