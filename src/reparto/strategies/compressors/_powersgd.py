"""Matrices by two thin factors.

M (n × m)  ≈  P (n × r) · Qᵀ (r × m)        P = ΣM Q, made orthogonal;  Q = ΣMᵀ P
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.errors import UsageError
from reparto.spec import Pattern
from reparto.strategies.compressors import _base


def _matrix(shape: tuple[int, ...], rank: int) -> tuple[int, int] | None:
    """A shape as rows and columns, if its factors are smaller than itself."""
    if len(shape) < 2 or not prod(shape):
        return None
    rows, columns = shape[0], prod(shape[1:])
    return (rows, columns) if rank * (rows + columns) < rows * columns else None


class PowerSGD(_base.Compressor):
    """Adds up low-rank factors; what they do not reach is owed."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Config):
        """Settings.

        Attributes:
            rank: Columns of the factors; more keep more.
            seed: Of the first factors.
        """

        kind: ClassVar[str] = "powersgd"
        summary: ClassVar[str] = "matrices as products of two thin ones, errors fed back"
        paper: ClassVar[str] = "Vogels et al. 2019, arXiv:1905.13727"
        rank: int = 4
        seed: int = 0

        def __post_init__(self) -> None:
            if self.rank < 1:
                raise UsageError(f"factors of rank {self.rank}", remedy="give 1 or more")

        def parts(self, shapes: _base.Shapes, num_workers: int) -> tuple[tuple[Pattern, int], ...]:
            """What is no matrix with the first factors, then the second factors."""
            first = second = 0
            for shape in shapes:
                found = _matrix(tuple(shape), self.rank)
                first += prod(shape) if found is None else found[0] * self.rank
                second += 0 if found is None else found[1] * self.rank
            parts: list[tuple[Pattern, int]] = [("all-reduce", 4 * first)]
            return (*parts, ("all-reduce", 4 * second)) if second else tuple(parts)

        def build(self, group: Group) -> PowerSGD:
            """The live compressor."""
            return PowerSGD(group, self)

    def __init__(self, group: Group, config: PowerSGD.Config) -> None:
        super().__init__(group)
        self.config = config
        self._factors: dict[tuple[str, int], Tensor] = {}

    def encode(self, tensor: Tensor, key: str) -> Tensor:
        """A matrix cannot be known from a flat tensor: as it is."""
        return tensor.contiguous().view(torch.uint8)

    def decode(self, payload: Tensor, like: Tensor) -> Tensor:
        """As it is."""
        return payload.view(like.dtype)

    def sum_over(self, flat: Tensor, shapes: _base.Shapes, key: str) -> Tensor:
        """Two all-reduces: first factors and what is no matrix; second factors."""
        wanted = self.with_owed(flat, key)
        sizes = [prod(shape) for shape in shapes]
        pieces = wanted.split(sizes)
        kinds = [_matrix(tuple(shape), self.config.rank) for shape in shapes]
        matrices = {number: pieces[number].view(kind) for number, kind in enumerate(kinds) if kind}
        others = [number for number, kind in enumerate(kinds) if not kind]
        firsts, sums = self._summed(
            [one @ self._second(key, number, one) for number, one in matrices.items()],
            [pieces[number] for number in others],
        )
        firsts = [torch.linalg.qr(_wide(first)).Q.to(first.dtype) for first in firsts]
        seconds, _ = self._summed(
            [one.t() @ first for one, first in zip(matrices.values(), firsts, strict=True)], []
        )
        total, lost = torch.empty_like(wanted), torch.zeros_like(wanted)
        totals, losses = total.split(sizes), lost.split(sizes)
        for number, its_sum in zip(others, sums, strict=True):
            totals[number].copy_(its_sum)
        for number, first, second in zip(matrices, firsts, seconds, strict=True):
            matrix = matrices[number]
            torch.mm(first, second.t(), out=totals[number].view_as(matrix))
            share = totals[number].view_as(matrix) / self.group.size()
            torch.sub(matrix, share, out=losses[number].view_as(matrix))
            if second.isfinite().all():
                self._factors[key, number] = second
            else:
                self._factors.pop((key, number), None)
        self._owed[key] = lost.nan_to_num_(0.0, 0.0, 0.0)
        return total

    def left(self, key: str, numel: int) -> Tensor | None:
        """Nothing: what is owed here holds how a worker differs from the mean, too."""
        return None

    def _second(self, key: str, number: int, matrix: Tensor) -> Tensor:
        known = self._factors.get((key, number))
        if known is not None and known.shape == (matrix.shape[1], self.config.rank):
            return known
        draws = torch.Generator().manual_seed(self.config.seed * 1000003 + number)
        made = torch.empty(matrix.shape[1], self.config.rank, dtype=matrix.dtype)
        return made.normal_(generator=draws).to(matrix.device)

    def _summed(
        self, factors: list[Tensor], rest: list[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        together = [*factors, *rest]
        if not together:
            return [], []
        sizes = [one.numel() for one in together]
        sums = self.group.sum(torch.cat([one.reshape(-1) for one in together])).split(sizes)
        shaped = [one.view_as(like) for one, like in zip(sums, together, strict=True)]
        return shaped[: len(factors)], shaped[len(factors) :]


def _wide(matrix: Tensor) -> Tensor:
    """As precise as factorising takes it."""
    return matrix if matrix.element_size() > 2 else matrix.float()
