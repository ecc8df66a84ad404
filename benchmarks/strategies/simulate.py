"""Where the rules for rates and momentum come from: LeNet-5 with all replicas on one device.

    python benchmarks/strategies/simulate.py                 minutes on a GPU, hours on two cores
    python benchmarks/strategies/simulate.py --only warm-up

Replicas are rows of one matrix, so a training of 16 workers takes seconds. Only what changes the
mathematics is simulated: local steps, drifts that are compressed and added up, an outer step,
and the mean that is shown. `run.py` then measures what was chosen here with real workers.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from lenet import LeNet, read
from torch import Tensor

HERE = Path(__file__).resolve().parent
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [tuple(one.shape) for one in LeNet().parameters()]
SIZES = [math.prod(shape) for shape in SHAPES]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of a simulated training; Adam 1e-3 and 64 samples a worker.

    Attributes:
        together: Gradients are averaged at each step, as all-reduce does.
        sync_every: Steps between rounds.
        rate: Factor on Adam's rate.
        warmup: Steps in which that factor grows from nothing.
        inner: Adam's first beta.
        outer: Nesterov momentum of the outer step.
        bits: 1, 8 or 32 an element of a drift.
        top: Or the part of a drift's elements that is sent, if it is above 0.
        stays: Whether what compression leaves out stays in the worker, or waits in a buffer.
        horizon: Rounds over which a mean is shown.
    """

    workers: int = 16
    together: bool = False
    sync_every: int = 1
    rate: float = 16.0
    warmup: int = 64
    inner: float = 0.9
    outer: float = 0.0
    outer_rate: float = 1.0
    bits: int = 32
    top: float = 0.0
    stays: bool = True
    block: int = 256
    horizon: float = 10.0


def outside(sync_every: int, inner: float, outer: float, **more: Any) -> Settings:
    """With momentum outside, and a rate that makes the same way."""
    given: dict[str, Any] = {"rate": 16 * (1 - outer), "horizon": 10 / sync_every, **more}
    return Settings(sync_every=sync_every, inner=inner, outer=outer, **given)


MOMENTA = ((0.0, 0.9), (0.5, 0.8), (0.5, 0.7))
#: Question: what is tried.
TRIED: dict[str, list[Settings]] = {
    "warm-up": [
        *(Settings(together=True, warmup=warmup) for warmup in (0, 30, 60, 90)),
        *(Settings(workers=4, together=True, rate=4, warmup=warmup) for warmup in (0, 16, 60)),
    ],
    "momentum": [
        outside(sync_every, inner, outer)
        for sync_every in (1, 2, 4, 8, 16)
        for inner, outer in MOMENTA
    ],
    "momentum, 1 bit": [outside(1, inner, outer, bits=1) for inner, outer in MOMENTA],
    "momentum, top-k 1 %": [outside(1, inner, outer, top=0.01) for inner, outer in MOMENTA],
    "rounds of four, 1 bit": [
        outside(4, 0.5, outer, bits=1, block=1024, outer_rate=outer_rate)
        for outer in (0.7, 0.8)
        for outer_rate in (1.0, 1.25, 1.5)
    ],
    "outer rate without compression": [
        outside(8, 0.5, 0.7, outer_rate=outer_rate) for outer_rate in (1.0, 1.5)
    ],
    "what is left out": [outside(1, 0.5, 0.7, top=0.01, stays=stays) for stays in (True, False)],
    "local-sgd, 1 bit": [
        Settings(sync_every=sync_every, bits=1, horizon=10 / sync_every, warmup=warmup)
        for sync_every in (2, 4)
        for warmup in (0, 64)
    ],
}


def logits(weights: Tensor, images: Tensor) -> Tensor:
    """Of every replica, a row of weights, for its own images."""
    count, batch = images.shape[:2]
    parts = zip(weights.split(SIZES, 1), SHAPES, strict=True)
    c1, b1, c2, b2, w3, b3, w4, b4, w5, b5 = (part.view(count, *shape) for part, shape in parts)
    x = images.transpose(0, 1).reshape(batch, count, 28, 28)
    x = F.conv2d(x, c1.flatten(0, 1), b1.flatten(), padding=2, groups=count)
    x = F.max_pool2d(F.relu(x), 2)
    x = F.conv2d(x, c2.flatten(0, 1), b2.flatten(), groups=count)
    x = F.max_pool2d(F.relu(x), 2).view(batch, count, 400).transpose(0, 1)
    x = F.relu(torch.baddbmm(b3.unsqueeze(1), x, w3.transpose(1, 2)))
    x = F.relu(torch.baddbmm(b4.unsqueeze(1), x, w4.transpose(1, 2)))
    return torch.baddbmm(b5.unsqueeze(1), x, w5.transpose(1, 2))


def compressed(rows: Tensor, settings: Settings) -> Tensor:
    """What arrives of some flat tensors."""
    if settings.top:
        count = max(1, int(settings.top * rows.shape[1]))
        places = rows.abs().topk(count, 1).indices
        return torch.zeros_like(rows).scatter_(1, places, rows.gather(1, places))
    if settings.bits == 32:
        return rows.clone()
    missing = -rows.shape[1] % settings.block
    blocks = F.pad(rows, (0, missing)).view(len(rows), -1, settings.block)
    if settings.bits == 1:
        scales = blocks.abs().mean(2, keepdim=True)
        found = torch.where(blocks >= 0, scales, -scales)
    else:
        top = 2 ** (settings.bits - 1) - 1
        scales = blocks.abs().amax(2, keepdim=True).clamp_min(1e-30) / top
        found = (blocks / scales + torch.rand_like(blocks)).floor().clamp(-top, top) * scales
    return found.reshape(len(rows), -1)[:, : rows.shape[1]]


class Data:
    """Fashion-MNIST on the device."""

    def __init__(self, folder: str) -> None:
        self.images, self.labels = (one.to(DEVICE) for one in _tensors(folder, "train"))
        self.test_images, self.test_labels = (one.to(DEVICE) for one in _tensors(folder, "t10k"))

    def accuracy(self, weights: Tensor) -> float:
        with torch.no_grad():
            found = logits(weights[None], self.test_images[None])[0].argmax(1)
        return float((found == self.test_labels).float().mean())


def _tensors(folder: str, name: str) -> tuple[Tensor, Tensor]:
    images, labels = read(folder, name).tensors
    return (images.float() / 255 - 0.2860) / 0.3530, labels


def simulate(data: Data, settings: Settings, seed: int, epochs: int = 5) -> float:
    """Train, and return the test accuracy."""
    torch.manual_seed(seed)
    count, beta1, beta2 = settings.workers, settings.inner, 0.999
    anchor = torch.cat([one.detach().flatten() for one in LeNet().parameters()]).to(DEVICE)
    weights = anchor.repeat(count, 1).requires_grad_()
    first, second, owed = (torch.zeros_like(weights) for _ in range(3))
    velocity, owed_sum = torch.zeros_like(anchor), torch.zeros_like(anchor)
    mean, num_rounds, step = anchor.clone(), 0, 0
    for _ in range(epochs):
        order = torch.randperm(len(data.labels)).to(DEVICE)
        batches = order.split(64 * count)
        for number, batch in enumerate(batches):
            rows = batch[: len(batch) // count * count].view(count, -1)
            found = logits(weights, data.images[rows].view(*rows.shape, 1, 28, 28))
            wrong = F.cross_entropy(found.flatten(0, 1), data.labels[rows].flatten())
            (grad,) = torch.autograd.grad(wrong * count, weights)
            if settings.together:
                grad = grad.mean(0, keepdim=True).expand_as(grad)
            step += 1
            rate = 1e-3 * settings.rate * min(1.0, step / max(1, settings.warmup))
            with torch.no_grad():
                first.mul_(beta1).add_(grad, alpha=1 - beta1)
                second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
                scale = (second / (1 - beta2**step)).sqrt_().add_(1e-8)
                weights -= rate * first / (1 - beta1**step) / scale
                is_round = step % settings.sync_every == 0 or number == len(batches) - 1
                if not settings.together and not is_round:
                    continue
                if settings.together:
                    anchor = weights[0].detach().clone()
                else:
                    drift = weights.detach() - anchor + owed
                    sent = compressed(drift, settings)
                    total = sent.mean(0) + owed_sum
                    arrived = total if settings.top else compressed(total[None], settings)[0]
                    owed_sum = total - arrived
                    velocity.mul_(settings.outer).add_(arrived)
                    anchor = anchor + settings.outer_rate * (arrived + settings.outer * velocity)
                    left = drift - sent
                    owed = torch.zeros_like(owed) if settings.stays else left
                    weights.copy_(anchor + left if settings.stays else anchor.expand_as(weights))
                num_rounds += 1
                mean.lerp_(anchor, max(1 / max(1.0, settings.horizon), 1 / num_rounds))
    return data.accuracy(mean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="", metavar="TEXT", help="questions that contain it")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="S")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--results", type=Path, default=HERE / "results" / "simulation.json")
    args = parser.parse_args()
    data = Data(args.data)
    rows = json.loads(args.results.read_text())["rows"] if args.results.exists() else []
    rows = [row for row in rows if args.only not in row["question"]]
    for question in [one for one in TRIED if args.only in one]:
        print(question)
        for settings in TRIED[question]:
            began = time.perf_counter()
            found = [round(simulate(data, settings, seed), 4) for seed in args.seeds]
            told = {k: v for k, v in vars(settings).items() if v != getattr(Settings(), k)}
            print(f"  {statistics.mean(found):.4f} {found} {told} "
                  f"{time.perf_counter() - began:.0f} s", flush=True)  # fmt: skip
            rows.append({"question": question, "settings": told, "accuracy": found})
    args.results.parent.mkdir(exist_ok=True)
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    args.results.write_text(f'{{"device": "{DEVICE}", "rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
