"""Captions for images: the likeliest word each time, or the likeliest of several beams.

Both work on a whole batch of images and read each word once, since the LSTM's state is kept.
"""

import torch

from vocabulary import END, MAX_LENGTH, PADDING, START


@torch.no_grad()
def greedy(model, features, vocabulary):
    """Return a caption for each image, made of the likeliest next words."""
    end = vocabulary.numbers[END]
    image = model.read_image(features)
    words = torch.full((len(features), 1), vocabulary.numbers[START])
    state = None
    ended = torch.zeros_like(words, dtype=torch.bool)
    captions = []
    for _ in range(MAX_LENGTH - 1):
        read, state = model.read_words(words, state)
        words = next_words(model, image, read).argmax(-1)
        captions.append(words)
        ended |= words == end
        if ended.all():
            break
    return [vocabulary.decode(numbers) for numbers in torch.cat(captions, 1).tolist()]


@torch.no_grad()
def beam_search(model, features, vocabulary, width):
    """Return a caption for each image, the best of `width` that are kept at a time.

    The last choice is by the mean log-probability of a word, so that short ones have no advantage.
    """
    num_images = len(features)
    end = vocabulary.numbers[END]
    num_words = len(vocabulary)
    image = model.read_image(features).repeat_interleave(width, 0)
    first_beams = torch.arange(num_images)[:, None] * width  # a row of beams for each image
    captions = torch.full((num_images * width, 1), vocabulary.numbers[START])
    state = None
    scores = torch.full((num_images, width), -torch.inf)
    scores[:, 0] = 0  # all beams begin alike: at first, only one of them counts
    ended = torch.zeros(num_images * width, dtype=torch.bool)
    for _ in range(MAX_LENGTH - 1):
        read, state = model.read_words(captions[:, -1:], state)
        log_probs = next_words(model, image, read)[:, 0].log_softmax(-1)
        log_probs[ended] = -torch.inf
        log_probs[ended, PADDING] = 0  # what has ended goes on, at no cost
        candidates = scores[:, :, None] + log_probs.view(num_images, width, num_words)
        scores, chosen = candidates.flatten(1).topk(width)
        parents = (first_beams + chosen // num_words).flatten()
        words = (chosen % num_words).flatten()
        captions = torch.cat([captions[parents], words[:, None]], 1)
        state = tuple(part[:, parents] for part in state)
        ended = ended[parents] | (words == end)
        if ended.all():
            break
    lengths = (captions != PADDING).sum(1).view(num_images, width) - 1
    best = (first_beams + (scores / lengths).argmax(1, keepdim=True)).flatten()
    return [vocabulary.decode(numbers) for numbers in captions[best].tolist()]


def next_words(model, image, read):
    """Return the logits of the next word; padding is none."""
    logits = model.predict(image, read)
    logits[..., PADDING] = -torch.inf
    return logits
