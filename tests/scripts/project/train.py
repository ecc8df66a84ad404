"""Entry point of a small project of several files: python train.py --epochs 3."""
import argparse
import json
import os

import torch
from torch import nn

import data
from engine import evaluate, train_one_epoch
from model import build_model


def get_args_parser():
    parser = argparse.ArgumentParser(description="Shapes classification")
    parser.add_argument("--model", default="convnet", type=str)
    parser.add_argument("--samples", default=181, type=int)
    parser.add_argument("-b", "--batch-size", default=14, type=int)
    parser.add_argument("--epochs", default=3, type=int)
    parser.add_argument("--lr", default=0.05, type=float)
    parser.add_argument("--seed", default=0, type=int)
    parser.add_argument("--output-dir", default="output", type=str)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", type=str)
    return parser


def main(args):
    torch.manual_seed(args.seed)
    os.makedirs(args.output_dir, exist_ok=True)
    device = torch.device(args.device)

    train_loader, val_loader = data.build_loaders(args.samples, args.batch_size, args.seed)
    model = build_model(args.model, num_classes=3).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=args.lr, total_steps=args.epochs * len(train_loader))

    best_acc = 0.0
    for epoch in range(args.epochs):
        train_loss = train_one_epoch(model, criterion, train_loader, optimizer, device, epoch, scheduler)
        val_loss, acc = evaluate(model, criterion, val_loader, device)
        print(f"Epoch {epoch}: train {train_loss:.4f} val {val_loss:.4f} acc {acc:.3f}")
        if acc >= best_acc:
            best_acc = acc
            torch.save({"model": model.state_dict(), "epoch": epoch}, os.path.join(args.output_dir, "best.pth"))
        with open(os.path.join(args.output_dir, "log.txt"), "a") as f:
            f.write(json.dumps({"epoch": epoch, "train": train_loss, "val": val_loss, "acc": acc}) + "\n")


if __name__ == "__main__":
    main(get_args_parser().parse_args())
