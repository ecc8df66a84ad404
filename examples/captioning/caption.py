"""Caption the test images with a trained model, and score the captions by BLEU.

python examples/captioning/caption.py --beam 3
"""

import argparse

import torch

from bleu import bleu_scores
from data import load_splits
from decode import beam_search, greedy
from model import MergeModel
from vocabulary import Vocabulary


def get_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="checkpoints/last.pt", metavar="FILE")
    parser.add_argument("--data", metavar="FOLDER", help="default: the folder of the training")
    parser.add_argument("--beam", type=int, default=1, metavar="K", help="1: greedy")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N images only")
    parser.add_argument("--show", type=int, default=3, metavar="N", help="captions to print")
    return parser.parse_args()


def load_model(file):
    """Return the model, its vocabulary and the arguments that it was trained with."""
    checkpoint = torch.load(file)
    vocabulary = Vocabulary(checkpoint["words"])
    model = MergeModel(len(vocabulary), dimension=checkpoint["args"]["dimension"])
    model.load_state_dict(checkpoint["model"])
    return model.eval(), vocabulary, checkpoint["args"]


def main():
    args = get_args()
    model, vocabulary, trained = load_model(args.checkpoint)
    splits = load_splits(args.data or trained["data"], trained["features"], trained["scenes"])
    references, features = (part[: args.limit] for part in splits["test"])

    captions = []
    for batch in torch.from_numpy(features).split(256):
        if args.beam > 1:
            captions += beam_search(model, batch, vocabulary, args.beam)
        else:
            captions += greedy(model, batch, vocabulary)

    references = [[" ".join(words) for words in of_image] for of_image in references]
    for caption, of_image in list(zip(captions, references))[: args.show]:
        print(f"model:  {caption}\npeople: {of_image[0]}\n")
    for n, score in enumerate(bleu_scores(captions, references), 1):
        print(f"BLEU-{n} {score:.4f}")


if __name__ == "__main__":
    main()
