"""No compression: bytes as they are."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.spec import Pattern
from reparto.strategies.compressors import _base


class Uncompressed(_base.Compressor):
    """Adds up as it is, exactly."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Config):
        """No settings."""

        kind: ClassVar[str] = "none"
        summary: ClassVar[str] = "bytes as they are; exact"

        @property
        def is_lossy(self) -> bool:
            """Nothing is lost."""
            return False

        def parts(self, shapes: _base.Shapes, num_workers: int) -> tuple[tuple[Pattern, int], ...]:
            """One all-reduce."""
            return (("all-reduce", 4 * sum(map(prod, shapes))),)

        def build(self, group: Group) -> Uncompressed:
            """The live compressor."""
            return Uncompressed(group)

    def encode(self, tensor: Tensor, key: str) -> Tensor:
        """The bytes of the tensor."""
        return tensor.contiguous().view(torch.uint8)

    def decode(self, payload: Tensor, like: Tensor) -> Tensor:
        """The tensor of the bytes."""
        return payload.view(like.dtype)

    def sum_over(self, flat: Tensor, shapes: _base.Shapes, key: str) -> Tensor:
        """One all-reduce."""
        return self.group.sum(flat.clone())
