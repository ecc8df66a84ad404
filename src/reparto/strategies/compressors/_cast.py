"""Half precision on the way."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.spec import Pattern
from reparto.strategies.compressors import _base

#: Fixed here, once: ``verify`` gives the names in ``torch`` another meaning.
_TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
_LARGEST = {"f16": 65504.0, "bf16": 3.3895e38}


class Cast(_base.Chunked):
    """Sends halves; adds up in full precision."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Config):
        """Settings.

        Attributes:
            dtype: ``f16`` (11 bits of precision, up to 65504) or ``bf16`` (8 bits, any size).
            error_feedback: Whether what rounding loses is added to the next step.
        """

        kind: ClassVar[str] = "cast"
        summary: ClassVar[str] = "half precision on the way: half the bytes"
        paper: ClassVar[str] = "Micikevicius et al. 2018, arXiv:1710.03740"
        dtype: Literal["f16", "bf16"] = "f16"
        error_feedback: bool = True

        def parts(self, shapes: _base.Shapes, num_workers: int) -> tuple[tuple[Pattern, int], ...]:
            """Chunks to their owners, sums to everyone."""
            chunk = _base.chunk_length(sum(map(prod, shapes)), num_workers, 1)
            return (("exchange", 2 * chunk * num_workers), ("gather", 2 * chunk))

        def build(self, group: Group) -> Cast:
            """The live compressor."""
            return Cast(group, self)

    def __init__(self, group: Group, config: Cast.Config) -> None:
        super().__init__(group)
        self.config = config

    def encode(self, tensor: Tensor, key: str) -> Tensor:
        """Halves, the largest of them where a number is too large for one."""
        wanted = self.with_owed(tensor, key) if self.config.error_feedback else tensor
        largest = _LARGEST[self.config.dtype]
        fitting = torch.where(wanted.isinf(), wanted, wanted.clamp(-largest, largest))
        halves = fitting.to(_TYPES[self.config.dtype])
        if self.config.error_feedback:
            self.owe(key, wanted, halves.to(wanted.dtype))
        return halves.view(torch.uint8)

    def decode(self, payload: Tensor, like: Tensor) -> Tensor:
        """Full precision again."""
        return payload.view(_TYPES[self.config.dtype]).to(like.dtype)
