"""Majority votes on signs, and a compressor that rounds: a plugin of reparto."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.spec import Cluster, Message, Pattern, Profile, Traffic
from reparto.strategies import ParameterSet, Shared, Strategy, compressors, grad_of, set_grad


class SignVote(Strategy):
    """Each worker votes on the sign of each gradient; the majority's goes, at the mean size."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Shared):
        """Settings.

        Attributes:
            scale: Factor on the size of a step.
        """

        kind: ClassVar[str] = "sign-vote"
        summary: ClassVar[str] = "a majority vote on the sign of each gradient"
        formula: ClassVar[str] = "2 (1 − 1/N) S/4 a step"
        paper: ClassVar[str] = "Bernstein et al. 2018, arXiv:1802.04434"
        scale: float = 1.0

        @property
        def changes(self) -> str:
            """Only signs are kept."""
            return "only the majority's sign of each gradient is kept"

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """A byte a parameter."""
            return (Message(pattern="all-reduce", size_bytes=profile.num_parameters, ready_at=1),)

        def build(self, group: Group) -> SignVote:
            """The live strategy."""
            return SignVote(group, self)

    def __init__(self, group: Group, config: SignVote.Config) -> None:
        super().__init__(group)
        self.config = config

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """Vote."""
        grads = [grad_of(tensor) for tensor in parameters.tensors]
        sizes = [0.0 if one is None else float(one.abs().sum()) for one in grads]
        present = [float(one is not None) for one in grads]
        numbers = torch.tensor([*present, *sizes, *riders])
        totals = self.group.sum(numbers).tolist()
        count = len(grads)
        for index, (tensor, grad) in enumerate(zip(parameters.tensors, grads, strict=True)):
            if not totals[index] or not tensor.numel():
                continue
            votes = torch.zeros(tensor.shape, dtype=torch.int8)
            if grad is not None:
                votes.copy_(grad.sign())
            self.group.sum(votes)
            mean = totals[count + index] / tensor.numel()
            made = torch.empty_like(tensor if grad is None else grad)
            set_grad(tensor, made.copy_(votes.sign() * (self.config.scale * mean)))
        return totals[2 * count :]


class Eighths(compressors.Chunked):
    """Rounds to eighths of the largest, a byte an element."""

    @dataclass(frozen=True, kw_only=True)
    class Config(compressors.Config):
        """Settings."""

        kind: ClassVar[str] = "eighths"
        summary: ClassVar[str] = "rounds to eighths of the largest element"

        def parts(
            self, shapes: Sequence[Sequence[int]], num_workers: int
        ) -> tuple[tuple[Pattern, int], ...]:
            """A byte an element, and the largest."""
            chunk = -(-sum(map(prod, shapes)) // num_workers) + 4
            return (("exchange", chunk * num_workers), ("gather", chunk))

        def build(self, group: Group) -> Eighths:
            """The live compressor."""
            return Eighths(group)

    def encode(self, tensor: Tensor, key: str) -> Tensor:
        """The largest, then an eighth of it for each."""
        wanted = self.with_owed(tensor, key)
        largest = wanted.abs().max().clamp_min(1e-30).to(torch.float32)
        eighths = (wanted / largest * 8).round().to(torch.int8)
        self.owe(key, wanted, eighths.to(wanted.dtype) * largest / 8)
        return torch.cat([largest.view(1).view(torch.uint8), eighths.view(torch.uint8)])

    def decode(self, payload: Tensor, like: Tensor) -> Tensor:
        """Eighths of the largest."""
        largest = payload[:4].clone().view(torch.float32)
        return payload[4:].view(torch.int8).to(like.dtype) * largest / 8
