"""How many steps do four replicas need? Trains them on one GPU, without any network.

    python benchmarks/captioning_network/simulate.py --data FOLDER --settings FILE --results FILE

Replicas are rows of one matrix; each round does what `strategies` do: local steps of Adam, the
mean drift (perhaps of 1 bit, with errors fed back), an outer Nesterov step, applied late if it
overlaps. Steps are counted at which the development loss is 3.60. This finds settings worth
measuring; what is claimed is measured by run.py, on the lab, with reparto itself.
results/simulation.json has those that were tried, by growing versions of this file, so not every
row names every setting.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "captioning"
TARGET = 3.60


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A way to train; see `reparto strategies show diloco`."""

    workers: int = 4
    batch: int = 32
    lr: float = 1e-3
    beta1: float = 0.9
    every: int = 1
    outer_rate: float = 1.0
    outer_momentum: float = 0.0
    bits: int = 32
    overlap: int = 0
    keep: float = 1.0
    fragments: int = 1
    warmup: int = 16
    average: float = 0.0
    seed: int = 0
    max_steps: int = 700
    beta2: float = 0.999
    moments: str = ""
    moment_bits: int = 32
    combine: str = "mean"
    delay: int = 0
    topk: float = 0.0
    feedback: bool = True
    stop: bool = True


class Job:
    """The data and the model of the example, on a device."""

    def __init__(self, folder: Path, device: str) -> None:
        sys.path.insert(0, str(EXAMPLE))
        from data import load_splits
        from model import MergeModel
        from vocabulary import Vocabulary

        splits: Any = load_splits(str(folder), "surrogate", 0)
        captions, features = splits["train"]
        vocabulary = Vocabulary.of(one for several in captions for one in several)
        self.device = device
        self.train = self._laid(captions, features, vocabulary)
        self.dev = self._laid(*splits["dev"], vocabulary)
        self.make = lambda: MergeModel(len(vocabulary)).to(device)

    def _laid(self, captions: Any, features: Any, vocabulary: Any) -> Any:
        words, images = [], []
        for image, several in enumerate(captions):
            for one in several:
                words.append(torch.tensor(vocabulary.encode(one)))
                images.append(image)
        padded = torch.nn.utils.rnn.pad_sequence(words, batch_first=True).to(self.device)
        lengths = torch.tensor([len(one) for one in words])
        rows = torch.from_numpy(features).to(self.device)
        return rows, torch.tensor(images, device=self.device), padded, lengths

    def batch(self, split: Any, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, images, padded, lengths = split
        longest = int(lengths[index].max())
        on = index.to(self.device)
        words = padded[on, :longest]
        return rows[images[on]], words[:, :-1], words[:, 1:]


def loss_of(logits: Tensor, targets: Tensor, reduction: str = "mean") -> Tensor:
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=0, reduction=reduction
    )


class Flat:
    """A model whose parameters are a row."""

    def __init__(self, job: Job) -> None:
        self.model = job.make().train()
        self.parameters = list(self.model.parameters())
        self.sizes = [one.numel() for one in self.parameters]

    def read(self) -> Tensor:
        return torch.cat([one.detach().reshape(-1) for one in self.parameters])

    def write(self, row: Tensor) -> None:
        for one, part in zip(self.parameters, row.split(self.sizes), strict=True):
            one.data.copy_(part.view_as(one))

    def gradient(self, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        features, words, targets = batch
        loss = loss_of(self.model(features, words), targets)
        grads = torch.autograd.grad(loss, self.parameters)
        return torch.cat([one.reshape(-1) for one in grads])

    @torch.no_grad()
    def evaluated(self, job: Job, row: Tensor) -> float:
        self.write(row)
        self.model.eval()
        total, count = torch.zeros((), device=job.device), 0
        for index in torch.arange(len(job.dev[3])).split(1000):
            features, words, targets = job.batch(job.dev, index)
            total += loss_of(self.model(features, words), targets, "sum")
            count += int((targets != 0).sum())
        self.model.train()
        return float(total) / count


def quantized(wanted: Tensor, bits: int, block: int = 256) -> Tensor:
    """What arrives of rows that are sent with so many bits an element."""
    if bits == 32:
        return wanted
    length = wanted.shape[-1]
    padded = torch.nn.functional.pad(wanted, (0, -length % block))
    blocks = padded.view(*wanted.shape[:-1], -1, block)
    if bits == 1:
        found = blocks.sign() * blocks.abs().mean(-1, keepdim=True)
    else:
        top = 2 ** (bits - 1) - 1
        scale = blocks.abs().amax(-1, keepdim=True).clamp_min(1e-30) / top
        found = (blocks / scale + torch.rand_like(blocks)).floor().clamp(-top, top) * scale
    return found.view(*wanted.shape[:-1], -1)[..., :length]


def combined(rows: Tensor, how: str, block: int = 256) -> Tensor:
    """The mean of what workers send, or their sum over the number of those that take part.

    Where one worker alone has moved, its way is taken whole, not a quarter of it: the number is
    (sum |x|)^2 / sum x^2, of elements or of the blocks' means.
    """
    if how == "mean":
        return rows.mean(0)
    size = rows.abs()
    if how == "block":
        length = rows.shape[1]
        padded = torch.nn.functional.pad(size, (0, -length % block)).view(len(rows), -1, block)
        size = padded.mean(2, keepdim=True).expand_as(padded).reshape(len(rows), -1)[:, :length]
    count = size.sum(0).square() / size.square().sum(0).clamp_min(1e-30)
    return rows.sum(0) / count.clamp(1, len(rows))


def levelled(second: Tensor, block: int = 256) -> Tensor:
    """Second moments, in each block as large on the mean as over all workers."""
    length = second.shape[1]
    blocks = torch.nn.functional.pad(second, (0, -length % block)).view(len(second), -1, block)
    own = blocks.mean(2, keepdim=True)
    common = own.mean(0, keepdim=True)
    found = torch.where(own > 0, blocks * (common / own.clamp_min(1e-38)), common)
    return found.view(len(second), -1)[:, :length]


def moments(first: Tensor, second: Tensor, at: Setting) -> tuple[Tensor, ...]:
    """The means of Adam's moments over workers, and what each worker had."""
    m = quantized(quantized(first, at.moment_bits).mean(0), at.moment_bits)
    roots = quantized(second.sqrt(), at.moment_bits)
    v = quantized(roots.square().mean(0).sqrt(), at.moment_bits).square()
    return m, first.clone(), v, second.clone()


def run(job: Job, at: Setting, every: int = 25) -> dict[str, Any]:
    """Train until the target; the curve of development losses."""
    torch.manual_seed(at.seed)
    flat = Flat(job)
    n = at.workers
    rows = flat.read().repeat(n, 1)
    size = rows.shape[1]
    first, second = torch.zeros_like(rows), torch.zeros_like(rows)
    anchor, velocity = rows[0].clone(), torch.zeros_like(rows[0])
    owed = torch.zeros_like(rows[0])
    left_out = torch.zeros_like(rows)
    late: list[Tensor] = []
    shown = anchor.clone()
    under_way: list[Any] = []
    bounds = [size * part // at.fragments for part in range(at.fragments + 1)]
    draw = torch.Generator().manual_seed(at.seed)
    order, place = torch.empty(0, dtype=torch.long), 0
    curve: list[tuple[int, float]] = []
    began = time.perf_counter()
    for step in range(1, at.max_steps + 1):
        rate = at.lr * min(1.0, (step + 1) / (at.warmup + 1)) if n > 1 else at.lr
        grads = torch.empty_like(rows)
        for worker in range(n):
            if place + at.batch > len(order):
                order, place = torch.randperm(len(job.train[3]), generator=draw), 0
            index = order[place : place + at.batch]
            place += at.batch
            flat.write(rows[worker])
            grads[worker] = flat.gradient(job.batch(job.train, index))
        if at.every == 0:  # all-reduce
            wanted = grads + left_out if at.feedback else grads
            if at.topk:
                least = wanted.abs().kthvalue(int(size * (1 - at.topk)), 1, keepdim=True)[0]
                sent = wanted * (wanted.abs() > least)
            else:
                sent = quantized(wanted, at.bits)
            left_out = wanted - sent
            total = sent.mean(0) + (owed if at.feedback else 0)
            arrives = total if at.topk else quantized(total, at.bits)
            owed = total - arrives
            late.append(arrives)
            grads[:] = late.pop(0) if len(late) > at.delay else 0
        first.lerp_(grads, 1 - at.beta1)
        second.mul_(at.beta2).addcmul_(grads, grads, value=1 - at.beta2)
        scale = (1 - at.beta2**step) ** 0.5 / (1 - at.beta1**step)
        rows.addcdiv_(first, second.sqrt().add_(1e-8 * (1 - at.beta2**step) ** 0.5),
                      value=-rate * scale)  # fmt: skip
        if at.every:
            each = at.every // at.fragments
            if step % each == 0:
                turn = step // each % at.fragments
                a, b = bounds[turn], bounds[turn + 1]
                drift = rows[:, a:b] - anchor[a:b]
                sent = quantized(drift, at.bits)
                total = combined(sent, at.combine) + owed[a:b]
                arrives = quantized(total, at.bits)
                owed[a:b] = total - arrives
                together = moments(first[:, a:b], second[:, a:b], at)
                under_way.append((step + at.overlap, a, b, rows[:, a:b].clone(), arrives,
                                  drift - sent, together))  # fmt: skip
            while under_way and under_way[0][0] <= step:
                _, a, b, was, mean, left, (m, m_was, v, v_was) = under_way.pop(0)
                if "m" in at.moments:
                    first[:, a:b] += m - m_was
                if "b" in at.moments:
                    second[:, a:b] = levelled(second[:, a:b])
                if "v" in at.moments:
                    second[:, a:b] = (second[:, a:b] + v - v_was).clamp_min_(0)
                velocity[a:b].mul_(at.outer_momentum).add_(mean)
                anchor[a:b] += at.outer_rate * (mean + at.outer_momentum * velocity[a:b])
                meanwhile = rows[:, a:b] - was
                rows[:, a:b] = anchor[a:b] + at.keep * meanwhile + left
        else:
            anchor = rows[0]
        if at.average:
            shown.lerp_(anchor, max(1 / at.average, 1 / step))
        if step % every == 0:
            loss = flat.evaluated(job, shown if at.average else anchor)
            curve.append((step, round(loss, 4)))
            if (at.stop and loss <= TARGET) or (step > 200 and loss > 5.2) or loss != loss:
                break
    return {**asdict(at), "curve": curve, "reached": crossing(curve),
            "seconds": round(time.perf_counter() - began, 1)}  # fmt: skip


def crossing(curve: list[tuple[int, float]]) -> float | None:
    """The step at which the target is crossed, between two evaluations."""
    for (s0, l0), (s1, l1) in itertools.pairwise(curve):
        if l1 <= TARGET < l0:
            return round(s0 + (s1 - s0) * (l0 - TARGET) / (l0 - l1), 1)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--settings", type=Path, required=True, help="JSON, a list of settings")
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--results", type=Path, required=True)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    job = Job(args.data, device)
    until = time.monotonic() + 60 * args.minutes
    found = []
    for plain in json.loads(args.settings.read_text()):
        if time.monotonic() > until:
            print("out of time")
            break
        found.append(run(job, Setting(**plain)))
        last = found[-1]
        tail = last["curve"][-1] if last["curve"] else None
        print(plain, last["reached"], tail, f"{last['seconds']} s", flush=True)
        args.results.write_text(json.dumps(found, indent=0) + "\n")


if __name__ == "__main__":
    main()
