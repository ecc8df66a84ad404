"""The merge model: an image and the words so far, each read alone, added, and read together.

    features (4096) ─ dropout ─ dense, ReLU ──────────────┐
                                                          + ─ dense, ReLU ─ dense ─ next word
    words ─ embedding ─ dropout ─ LSTM, every position ───┘

The image never enters the LSTM, so one pass over a caption predicts all of its words.
"""

import torch.nn.functional as F
from torch import nn

from vocabulary import PADDING


class MergeModel(nn.Module):
    """Predicts the next word at every position of a caption.

    Args:
        num_words: Size of the vocabulary, padding included.
        num_features: Width of an image's features.
        dimension: Width of everything else.
        dropout: Probability, of both inputs.
    """

    def __init__(self, num_words, num_features=4096, dimension=256, dropout=0.5):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.image = nn.Linear(num_features, dimension)
        self.embedding = nn.Embedding(num_words, dimension, padding_idx=PADDING)
        self.lstm = nn.LSTM(dimension, dimension, batch_first=True)
        self.hidden = nn.Linear(dimension, dimension)
        self.output = nn.Linear(dimension, num_words)

    def read_image(self, features):
        """Return (batch, 1, dimension), to be added at every position."""
        return F.relu(self.image(self.dropout(features))).unsqueeze(1)

    def read_words(self, words, state=None):
        """Return (batch, length, dimension) and the LSTM's state, with which to read on."""
        return self.lstm(self.dropout(self.embedding(words)), state)

    def predict(self, image, words):
        """Return the logits of the next word, (batch, length, num_words)."""
        return self.output(F.relu(self.hidden(image + words)))

    def forward(self, features, words):
        read, _ = self.read_words(words)
        return self.predict(self.read_image(features), read)
