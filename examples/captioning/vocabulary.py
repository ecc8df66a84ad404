"""Words and their numbers: how captions are cleaned, and which words are known."""

import string
from collections import Counter

PADDING = 0
START = "startseq"
END = "endseq"
MAX_LENGTH = 34  # words of a caption, START and END among them: the longest of Flickr8k's training

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def clean(text):
    """Return the words of a caption as Brownlee's tutorial cleans them.

    Lower case, no punctuation; words of one letter and words with digits are left out.

    >>> clean("A black dog, and 2 cats!")
    ['black', 'dog', 'and', 'cats']
    """
    words = (word.lower().translate(_WITHOUT_PUNCTUATION) for word in text.split())
    return [word for word in words if len(word) > 1 and word.isalpha()]


class Vocabulary:
    """Numbers for words, the most frequent first; 0 is padding.

    Args:
        words: The words from number 1 on.
    """

    def __init__(self, words):
        self.words = list(words)
        self.numbers = {word: number for number, word in enumerate(self.words, 1)}

    @classmethod
    def of(cls, captions):
        """Return the vocabulary of the training captions, each a list of words."""
        counts = Counter(word for caption in captions for word in (START, *caption, END))
        return cls(sorted(counts, key=lambda word: (-counts[word], word)))

    def __len__(self):
        return len(self.words) + 1

    def encode(self, caption):
        """Return START, the known words and END as numbers; unknown words are dropped."""
        known = [self.numbers[word] for word in caption if word in self.numbers]
        return [self.numbers[START], *known[: MAX_LENGTH - 2], self.numbers[END]]

    def decode(self, numbers):
        """Return the words up to END, in one string; START and padding are left out."""
        words = []
        for number in numbers:
            if number == self.numbers[END]:
                break
            if number not in (PADDING, self.numbers[START]):
                words.append(self.words[number - 1])
        return " ".join(words)
