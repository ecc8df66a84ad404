"""Train a model that describes images, on Flickr8k or on drawn scenes.

An ordinary project of several files: one process, nothing in it knows about reparto.

    python examples/captioning/train.py --epochs 2
    python examples/captioning/train.py --data flickr8k --steps 1800 --evaluate-every 200
"""

import argparse
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset

from data import CaptionDataset, collate, load_splits
from model import MergeModel
from vocabulary import PADDING, Vocabulary


def get_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="FOLDER", help="Flickr8k's files; drawn scenes without")
    parser.add_argument("--features", choices=["auto", "vgg16", "surrogate"], default="auto")
    parser.add_argument("--scenes", type=int, default=1500, help="how many to draw")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, metavar="N", help="stop after N steps")
    parser.add_argument(
        "--evaluate-every", type=int, default=0, metavar="N", help="steps; 0: each epoch"
    )
    parser.add_argument(
        "--evaluate-captions", type=int, metavar="N", help="evenly spaced; default: all"
    )
    parser.add_argument(
        "--target", type=float, default=0.0, metavar="LOSS", help="stop at this dev loss"
    )
    parser.add_argument("--dimension", type=int, default=256, help="width of the model")
    parser.add_argument("--out", default="checkpoints", metavar="FOLDER")
    return parser.parse_args()


def evenly_spaced(dataset, num):
    """Return `num` samples of a data set, or all where it has no more."""
    if num is None or num >= len(dataset):
        return dataset
    return Subset(dataset, [i * len(dataset) // num for i in range(num)])


def loss_of(logits, targets, reduction="mean"):
    """Return the cross entropy of the words; padding does not count."""
    return F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=PADDING, reduction=reduction
    )


@torch.no_grad()
def evaluate(model, loader):
    """Return the mean loss of a word."""
    model.eval()
    total_loss = 0.0
    num_words = 0
    for features, words, targets in loader:
        total_loss += loss_of(model(features, words), targets, reduction="sum").item()
        num_words += (targets != PADDING).sum().item()
    model.train()
    return total_loss / num_words


class Reporter:
    """Evaluates and prints, and keeps the time that this takes out of the time of training."""

    def __init__(self, model, loader):
        self.model = model
        self.loader = loader
        self.started = time.perf_counter()

    def report(self, step):
        """Print the development loss after a step, and return it."""
        begin = time.perf_counter()
        seconds = begin - self.started
        loss = evaluate(self.model, self.loader)
        print(f"step {step}  dev loss {loss:.4f}  train {seconds:.1f} s", flush=True)
        self.started += time.perf_counter() - begin
        return loss


def train(model, optimizer, loader, reporter, args, save):
    """Train until the epochs or the steps are done, or the development loss is low enough."""
    evaluate_every = args.evaluate_every or len(loader)
    step = 0
    model.train()
    for epoch in range(1, args.epochs + 1):
        for features, words, targets in loader:
            loss = loss_of(model(features, words), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % evaluate_every == 0 or step == args.steps:
                dev_loss = reporter.report(step)
                if dev_loss <= args.target or step == args.steps:
                    return
        save(f"epoch-{epoch}.pt")


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    splits = load_splits(args.data, args.features, args.scenes)
    train_captions, train_features = splits["train"]
    vocabulary = Vocabulary.of(caption for of_image in train_captions for caption in of_image)
    train_set = CaptionDataset(train_captions, train_features, vocabulary)
    dev_set = evenly_spaced(CaptionDataset(*splits["dev"], vocabulary), args.evaluate_captions)
    train_loader = DataLoader(
        train_set,
        args.batch_size,
        shuffle=True,
        generator=torch.Generator().manual_seed(args.seed),
        collate_fn=collate,
    )
    dev_loader = DataLoader(dev_set, 256, collate_fn=collate)

    model = MergeModel(len(vocabulary), dimension=args.dimension)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(train_set)} captions, {len(vocabulary)} words, {num_parameters} parameters")

    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)

    def save(name):
        checkpoint = {
            "model": model.state_dict(),
            "words": vocabulary.words,
            "args": vars(args),
        }
        torch.save(checkpoint, out / name)

    train(model, optimizer, train_loader, Reporter(model, dev_loader), args, save)
    save("last.pt")


if __name__ == "__main__":
    main()
