"""BLEU, by sacrebleu: how many runs of words a caption shares with those that people wrote."""

from itertools import zip_longest

from sacrebleu.metrics import BLEU


def bleu_scores(captions, references):
    """Return BLEU-1 to BLEU-4 of all captions together, from 0 to 1.

    Args:
        captions: One for each image.
        references: For each image, the captions that people wrote, cleaned in the same way.
    """
    # sacrebleu wants the first reference of every image, then the second of every image
    streams = list(zip_longest(*references))
    return [
        BLEU(max_ngram_order=n, tokenize="none", smooth_method="none")
        .corpus_score(captions, streams)
        .score
        / 100
        for n in range(1, 5)
    ]
