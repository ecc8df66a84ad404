"""A few elements instead of all of them: the largest, or some at random."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.errors import UsageError
from reparto.spec import Pattern
from reparto.strategies.compressors import _base

_INT32, _UINT8 = torch.int32, torch.uint8


def _check(fraction: float, warmup_steps: int) -> None:
    if not 0 < fraction <= 1:
        raise UsageError(f"a fraction of {fraction} is not in (0, 1]", remedy="0.01 sends 1 %")
    if warmup_steps < 0:
        raise UsageError("a warm-up of less than no steps", remedy="give 0 or more")


def num_kept(numel: int, fraction: float) -> int:
    """How many elements are sent; at least one."""
    return max(1, min(numel, math.ceil(numel * fraction)))


class TopK(_base.Compressor):
    """Sends the largest elements; the others are owed, and sent when they have grown."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Config):
        """Settings.

        Attributes:
            fraction: Share of the elements that is sent.
            momentum: Of the script's SGD, for momentum correction: what is not sent yet gathers
                momentum here. 0 leaves it to the optimizer (set that one's to 0 otherwise).
            warmup_steps: So many steps send more: from a quarter, less and less.
        """

        kind: ClassVar[str] = "topk"
        summary: ClassVar[str] = "the largest 1 % of the elements, the rest owed"
        paper: ClassVar[str] = "Lin et al. 2018 (Deep Gradient Compression), arXiv:1712.01887"
        fraction: float = 0.01
        momentum: float = 0.0
        warmup_steps: int = 0

        def __post_init__(self) -> None:
            _check(self.fraction, self.warmup_steps)
            if not 0 <= self.momentum < 1:
                raise UsageError(f"a momentum of {self.momentum} is not in [0, 1)")

        def parts(self, shapes: _base.Shapes, num_workers: int) -> tuple[tuple[Pattern, int], ...]:
            """Places and values, gathered."""
            return (("gather", 8 * num_kept(sum(map(prod, shapes)), self.fraction)),)

        def build(self, group: Group) -> TopK:
            """The live compressor."""
            return TopK(group, self)

    def __init__(self, group: Group, config: TopK.Config) -> None:
        super().__init__(group)
        self.config = config
        self._velocity: dict[str, Tensor] = {}
        self._calls: dict[str, int] = {}

    def fraction(self, key: str) -> float:
        """The share to be sent now."""
        return warmed(self.config.fraction, self.config.warmup_steps, self._calls.get(key, 0))

    def encode(self, tensor: Tensor, key: str) -> Tensor:
        """Places and values of the largest."""
        fresh = self._with_momentum(tensor, key)
        wanted = self.with_owed(fresh, key)
        count = num_kept(wanted.numel(), self.fraction(key))
        self._calls[key] = self._calls.get(key, 0) + 1
        places = wanted.abs().topk(count, sorted=False).indices
        values = wanted[places]
        self._owed[key] = wanted.index_fill_(0, places, 0.0)
        if self.config.momentum:
            self._velocity[key].index_fill_(0, places, 0.0)
        return torch.cat([values.contiguous().view(_UINT8), places.to(_INT32).view(_UINT8)])

    def decode(self, payload: Tensor, like: Tensor) -> Tensor:
        """Zeros but for what was sent."""
        places, values = _parted(payload, like)
        return torch.zeros_like(like).index_put_((places,), values)

    def sum_over(self, flat: Tensor, shapes: _base.Shapes, key: str) -> Tensor:
        """Gather everyone's, and add them up in the order of ranks."""
        payloads = self.group.gather_all(self.encode(flat, key))
        total = torch.zeros_like(flat)
        for payload in payloads:
            places, values = _parted(payload, flat)
            total.index_add_(0, places, values)
        return total

    def forget(self) -> None:
        """Drop what is owed, and its momentum."""
        super().forget()
        self._velocity.clear()

    def left(self, key: str, numel: int) -> Tensor | None:
        """With momentum all stays owed: the velocity holds it, too."""
        return None if self.config.momentum else super().left(key, numel)

    def _with_momentum(self, tensor: Tensor, key: str) -> Tensor:
        if not self.config.momentum:
            return tensor
        velocity = self._velocity.get(key)
        if velocity is None or velocity.shape != tensor.shape:
            velocity = self._velocity[key] = torch.zeros_like(tensor)
        return velocity.mul_(self.config.momentum).add_(tensor)


def _parted(payload: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Places and values; values come first, where they are aligned."""
    mark = payload.numel() // (4 + like.element_size()) * like.element_size()
    places = payload[mark:].clone()  # behind halves they may begin anywhere
    return places.view(_INT32).long(), payload[:mark].view(like.dtype)


class RandomK(_base.Compressor):
    """Sends elements at random places, the same on every worker: those need not travel."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Config):
        """Settings.

        Attributes:
            fraction: Share of the elements that is sent.
            warmup_steps: So many steps send more: from a quarter, less and less.
            seed: Of the places.
        """

        kind: ClassVar[str] = "randomk"
        summary: ClassVar[str] = "1 % of the elements, at random places that all workers know"
        paper: ClassVar[str] = "Stich et al. 2018 (Sparsified SGD with memory), arXiv:1809.07599"
        fraction: float = 0.01
        warmup_steps: int = 0
        seed: int = 0

        def __post_init__(self) -> None:
            _check(self.fraction, self.warmup_steps)

        def parts(self, shapes: _base.Shapes, num_workers: int) -> tuple[tuple[Pattern, int], ...]:
            """Values, added up."""
            return (("all-reduce", 4 * num_kept(sum(map(prod, shapes)), self.fraction)),)

        def build(self, group: Group) -> RandomK:
            """The live compressor."""
            return RandomK(group, self)

    def __init__(self, group: Group, config: RandomK.Config) -> None:
        super().__init__(group)
        self.config = config
        self._calls: dict[str, int] = {}

    def encode(self, tensor: Tensor, key: str) -> Tensor:
        """The values at this call's places."""
        wanted = self.with_owed(tensor, key)
        places = self._places(wanted, self._calls.get(key, 0))
        self._calls[key] = self._calls.get(key, 0) + 1
        values = wanted[places]
        self._owed[key] = wanted.index_fill_(0, places, 0.0)
        return values.view(_UINT8)

    def decode(self, payload: Tensor, like: Tensor) -> Tensor:
        """Zeros but for what was sent; of the last call."""
        calls = max(self._calls.values(), default=1) - 1
        places = self._places(like, calls)
        return torch.zeros_like(like).index_put_((places,), payload.view(like.dtype))

    def sum_over(self, flat: Tensor, shapes: _base.Shapes, key: str) -> Tensor:
        """Add up the values."""
        call = self._calls.get(key, 0)
        values = self.group.sum(self.encode(flat, key).view(flat.dtype))
        return torch.zeros_like(flat).index_put_((self._places(flat, call),), values)

    def _places(self, like: Tensor, call: int) -> Tensor:
        fraction = warmed(self.config.fraction, self.config.warmup_steps, call)
        seed = (self.config.seed * 1000003 + call) * 31 + like.numel()
        draws = torch.Generator().manual_seed(seed)
        scores = torch.empty(like.numel()).uniform_(generator=draws)
        count = num_kept(like.numel(), fraction)
        return scores.topk(count, sorted=False).indices.to(like.device)


def warmed(fraction: float, warmup_steps: int, step: int) -> float:
    """The share to be sent at a step: from a quarter down to the fraction, by equal factors."""
    if step >= warmup_steps or fraction >= 0.25:
        return fraction
    return float(0.25 * (fraction / 0.25) ** ((step + 1) / (warmup_steps + 1)))
