"""The server's side of dedicated servers: what a worker does that runs no script.

It does what worker 0 says (`_dedicated`): adds up what comes, steps, sends, tells its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.strategies._base import set_grad
from reparto.strategies._flat import by_type, laid
from reparto.strategies._parameter_server import packed, unpacked

#: What worker 0 says, and by which tag things travel.
SUM, BRING, STEP, STATE, STOP = range(5)
HEADER, NEWS, GRADIENTS, PARAMETERS, REPLY = range(5)


class Described(NamedTuple):
    """A tensor as a server knows it: its place in the set, its shape, its type."""

    place: int
    shape: tuple[int, ...]
    dtype: str

    @classmethod
    def of(cls, index: int, tensor: Tensor) -> Described:
        """Of a tensor of a set."""
        return cls(index, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))

    def made(self) -> Tensor:
        """A tensor like it, of zeros."""
        return torch.zeros(self.shape, dtype=getattr(torch, self.dtype))


class Server:
    """A server's side: does what worker 0 says, until it says that it is over.

    Args:
        everyone: Workers, and behind them the servers.
        num_workers: How many of them run the script.
    """

    def __init__(self, everyone: Group, num_workers: int) -> None:
        self.group, self.num_workers = everyone, num_workers
        self._kept: dict[int, Kept] = {}

    def run(self) -> None:
        """Serve until the job ends."""
        while True:
            header = torch.zeros(5, dtype=torch.float64)
            try:
                self.group.recv([header], 0, HEADER).wait()
            except RuntimeError:
                return  # the workers are gone; whoever ended the job has told why
            what, number, length, is_held, factor = header.tolist()
            if what == STOP:
                return
            news: dict[str, Any] = {}
            if length:
                payload = torch.zeros(int(length), dtype=torch.uint8)
                self.group.recv([payload], 0, NEWS).wait()
                news = unpacked(payload)
            kept = self._kept.setdefault(int(number), Kept())
            self._do(int(what), kept, news, factor if is_held else None)

    def _do(self, what: int, kept: Kept, news: dict[str, Any], factor: float | None) -> None:
        kept.describe(news)
        if what == SUM:
            kept.sums = [self._summed(one) for one in kept.flats()]
        elif what == BRING:
            self._to_all(kept.sums)
        elif what == STEP:
            kept.learn(news)
            if factor is not None:  # they are here
                kept.sums = [one.mul_(factor) for one in kept.sums]
            else:
                kept.sums = [self._received(one, 0) for one in kept.flats()]
            kept.step()
            self._to_all([laid(tensors) for tensors in kept.by_type()])
        else:
            payload = packed(kept.state())
            self._to_all([torch.tensor([payload.numel()]), payload], REPLY)

    def _received(self, like: Tensor, source: int) -> Tensor:
        self.group.recv([like], source, GRADIENTS).wait()
        return like

    def _summed(self, like: Tensor) -> Tensor:
        """From all workers at once, added up in the order of ranks: the same in every run."""
        parts = [torch.empty_like(like) for _ in range(self.num_workers)]
        works = [self.group.recv([one], rank, GRADIENTS) for rank, one in enumerate(parts)]
        for work in works:
            work.wait()
        total = parts[0]
        for part in parts[1:]:
            total += part
        return total

    def _to_all(self, tensors: Sequence[Tensor], tag: int = PARAMETERS) -> None:
        works = [
            self.group.send([tensor], rank, tag)
            for tensor in tensors
            for rank in range(self.num_workers)
        ]
        for work in works:
            work.wait()


class Kept:
    """What a server keeps of one set of parameters."""

    def __init__(self) -> None:
        self.described: list[Described] = []
        self.tensors: dict[int, Tensor] = {}
        self.sums: list[Tensor] = []
        self.optimizer: Any = None
        self._kind = ""
        self._groups: list[dict[str, Any]] = []
        self._num_grouped = 0

    def describe(self, news: dict[str, Any]) -> None:
        """Which tensors have gradients, in the order in which they come."""
        if "tensors" in news:
            self.described = [Described(*one) for one in news["tensors"]]
            for one in self.described:
                made, known = one.made(), self.tensors.get(one.place)
                if known is None or (known.shape, known.dtype) != (made.shape, made.dtype):
                    self.tensors[one.place] = made.requires_grad_()

    def by_type(self) -> list[list[Tensor]]:
        """The tensors with gradients, in the lists in which they travel."""
        return by_type(self.tensors[one.place] for one in self.described)

    def flats(self) -> list[Tensor]:
        """As much room as gradients need."""
        return [room(tensors) for tensors in self.by_type()]

    def learn(self, news: dict[str, Any]) -> None:
        """Take over what the script has set."""
        with torch.no_grad():
            for index, values in news.get("parameters", {}).items():
                self.tensors[index].copy_(values)
        if "groups" in news:
            self._kind, self._groups = news["class"], news["groups"]
        if "groups" in news or self._num_grouped != len(self.tensors):
            self._regroup()
        for index, state in news.get("state", {}).items():
            self.optimizer.state[self.tensors[index]] = state

    def _regroup(self) -> None:
        """Settings have changed, or tensors have come that had no gradient before."""
        self._num_grouped = len(self.tensors)
        groups = [
            {
                **group,
                "params": [self.tensors[one] for one in group["params"] if one in self.tensors],
            }
            for group in self._groups
        ]
        if self.optimizer is None:
            first = next(group for group in groups if group["params"])
            self.optimizer = getattr(torch.optim, self._kind)([dict(first)])
        self.optimizer.param_groups = groups

    def step(self) -> None:
        """Step with the sums."""
        for tensor in self.tensors.values():
            set_grad(tensor, None)
        for flat, tensors in zip(self.sums, self.by_type(), strict=True):
            for tensor, piece in zip(tensors, pieces(flat, tensors), strict=True):
                set_grad(tensor, piece.clone())
        self.optimizer.step()

    def state(self) -> dict[int, Any]:
        """The optimizer's state of each tensor, by its place in the set."""
        if self.optimizer is None:
            return {}
        return {
            index: self.optimizer.state[tensor]
            for index, tensor in self.tensors.items()
            if tensor in self.optimizer.state
        }


def room(tensors: Sequence[Tensor]) -> Tensor:
    """For tensors of one type, end to end."""
    return tensors[0].new_empty(sum(tensor.numel() for tensor in tensors))


def pieces(flat: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """What lies end to end, in the shapes of tensors."""
    parts = flat.split([tensor.numel() for tensor in tensors])
    return [part.view(one.shape) for part, one in zip(parts, tensors, strict=True)]
