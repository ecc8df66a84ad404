"""Features of Flickr8k's images: those of VGG16, or a surrogate made of their captions."""

import math
from collections import Counter

import numpy as np

from vgg16 import missing_for_vgg16, vgg16_features

NUM_FEATURES = 4096

STOP_WORDS = frozenset(
    """
    about above across after against all along also am amongst an and another any are around as
    at away be because been before behind being below beneath beside besides between both but
    by can do does doing done down during each either for from get gets getting had has have
    having he her hers herself him himself his how if in inside into is it its itself just like
    may more most near next no nor not of off on onto or other others out outside over own past
    she so some something such than that the their theirs them themselves then there these they
    this those through to together too toward towards under until up upon very was we were what
    when where which while who whom whose will with within without you your
    """.split()
)


def make_features(kind, folder, captions, training):
    """Return the features of images, an array of (images, 4096) in the order of `captions`.

    Args:
        kind: "vgg16", "surrogate", or "auto": VGG16 where all that it needs is at hand.
        folder: The data folder.
        captions: The cleaned captions of each image, by the image's name.
        training: The names of the training images.
    """
    if kind == "surrogate":
        return surrogate(captions, training)
    missing = missing_for_vgg16(folder)
    if not missing:
        return vgg16_features(folder, list(captions))
    if kind == "vgg16":
        raise SystemExit(f"--features vgg16: {missing}; or take --features surrogate")
    print(f"features: surrogate, made of captions ({missing})")
    return surrogate(captions, training)


def surrogate(captions, training, seed=0):
    """Return a stand-in for image features: what the captions speak of, in random directions.

    A word that people use of an image is likely to be in the image. The bag of its content words
    (log count x idf) goes through a fixed random projection, is scaled to norm 64, blurred by
    noise and rectified, so that it looks like the last layer of a CNN. Words that no training
    caption has are unknown to it, as they would be to a CNN.
    """
    document_counts = Counter(
        word for name in training for word in set().union(*captions[name]) - STOP_WORDS
    )
    rows = {word: row for row, word in enumerate(sorted(document_counts))}
    idf = {word: math.log(len(training) / count) for word, count in document_counts.items()}

    random = np.random.default_rng(seed)
    projection = random.standard_normal((len(rows), NUM_FEATURES), dtype=np.float32)
    features = np.empty((len(captions), NUM_FEATURES), dtype=np.float32)
    for i, of_image in enumerate(captions.values()):
        counts = Counter(word for caption in of_image for word in caption if word in rows)
        weights = [math.log1p(count) * idf[word] for word, count in counts.items()]
        # einsum adds in order, with any number of threads: every process gets the same bits
        bag = np.array(weights, dtype=np.float32)
        image = np.einsum("w,wf->f", bag, projection[[rows[word] for word in counts]])
        image *= 64 / max(float(np.linalg.norm(image)), 1e-6)
        image += 0.3 * random.standard_normal(NUM_FEATURES, dtype=np.float32)
        np.maximum(image, 0, out=features[i])
    return features
