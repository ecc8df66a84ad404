"""The peer: the same job by PyTorch's DistributedDataParallel over gloo, as its manual shows it.

Started once a node by run.py, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Prints the lines
of train.py, and the median seconds of a step at the end.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "captioning"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", required=True)
    parser.add_argument("--batch-size", type=int, default=32, help="of a node")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--warmup", type=int, default=16, help="steps in which the rate grows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--target", type=float, default=0.0)
    args = parser.parse_args()
    sys.path.insert(0, str(EXAMPLE))
    train: Any = __import__("train")
    data: Any = __import__("data")
    model_file: Any = __import__("model")
    words: Any = __import__("vocabulary")

    torch.manual_seed(args.seed)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    splits = data.load_splits(args.data, "surrogate", 0)
    captions, features = splits["train"]
    vocabulary = words.Vocabulary.of(one for several in captions for one in several)
    samples = data.CaptionDataset(captions, features, vocabulary)
    dev = data.CaptionDataset(*splits["dev"], vocabulary)
    sampler: Any = DistributedSampler(samples, seed=args.seed)
    loader: Any = DataLoader(samples, args.batch_size, sampler=sampler, collate_fn=data.collate)
    dev_loader: Any = DataLoader(dev, 256, collate_fn=data.collate)
    model = DistributedDataParallel(model_file.MergeModel(len(vocabulary)))
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / 3, 1.0, max(1, args.warmup))
    torch.manual_seed(args.seed * 1000 + rank)  # dropout differs between nodes
    reporter = train.Reporter(model.module, dev_loader)
    times: list[float] = []
    step, epoch, loss = 0, 0, float("inf")
    while step < args.steps and loss > args.target:
        sampler.set_epoch(epoch)
        epoch += 1
        for inputs, read, targets in loader:
            began = time.perf_counter()
            optimizer.zero_grad()
            train.loss_of(model(inputs, read), targets).backward()
            optimizer.step()
            warm.step()
            times.append(time.perf_counter() - began)
            step += 1
            if args.evaluate_every and step % args.evaluate_every == 0:
                told = torch.tensor([reporter.report(step) if rank == 0 else 0.0])
                dist.broadcast(told, 0)
                loss = float(told)
            if step >= args.steps or loss <= args.target:
                break
    if rank == 0:
        print(f"median step {statistics.median(times[2:]):.4f} s of {len(times) - 2}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
