"""Few bits an element.

block of 256     │ scale (f32) │ level level level … │   8 bits: −127 … 127 of the largest
                                                        4 bits: −7 … 7, two a byte
                                                        1 bit: the sign, scale = mean |x|
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from reparto.comm import Group
from reparto.errors import UsageError
from reparto.spec import Pattern
from reparto.strategies.compressors import _base

_FLOAT32, _UINT8 = torch.float32, torch.uint8
_SCALE_BYTES = 4


class Quantize(_base.Chunked):
    """Rounds elements to a few levels, up or down at random, so that the mean is kept."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Config):
        """Settings.

        Attributes:
            bits: 8, 4 or 1.
            block: Elements that share a scale; a multiple of 8.
            error_feedback: Whether what rounding loses is added to the next step; 1 bit needs it.
            seed: Of the random rounding.
        """

        kind: ClassVar[str] = "quantize"
        summary: ClassVar[str] = "8, 4 or 1 bit an element, rounded at random, errors fed back"
        paper: ClassVar[str] = (
            "Alistarh et al. 2017 (QSGD), arXiv:1610.02132; Tang et al. 2021 (1-bit Adam), "
            "arXiv:2102.02888"
        )
        bits: Literal[8, 4, 1] = 8
        block: int = 256
        error_feedback: bool = True
        seed: int = 0

        def __post_init__(self) -> None:
            if self.block < 8 or self.block % 8:
                raise UsageError(
                    f"a block of {self.block} cannot be packed", remedy="take a multiple of 8"
                )

        def parts(self, shapes: _base.Shapes, num_workers: int) -> tuple[tuple[Pattern, int], ...]:
            """Chunks to their owners, sums to everyone."""
            numel = sum(map(prod, shapes))
            chunk = _base.chunk_length(numel, num_workers, self.block)
            size = chunk * self.bits // 8 + chunk // self.block * _SCALE_BYTES
            return (("exchange", size * num_workers), ("gather", size))

        def build(self, group: Group) -> Quantize:
            """The live compressor."""
            return Quantize(group, self)

    def __init__(self, group: Group, config: Quantize.Config) -> None:
        super().__init__(group)
        self.config, self.block = config, config.block
        self._draws: dict[torch.device, torch.Generator] = {}

    def encode(self, tensor: Tensor, key: str) -> Tensor:
        """Scales and levels of all blocks."""
        feeds = self.config.error_feedback
        wanted = self.with_owed(tensor, key) if feeds else tensor
        blocks = wanted.view(-1, self.block).to(_FLOAT32)
        if self.config.bits == 1:
            scales = blocks.abs().mean(1, keepdim=True)
            packed = packed_signs(blocks)
            values = signs(packed).mul_(scales) if feeds else blocks
        else:
            scales = blocks.abs().amax(1, keepdim=True)
            top = 2 ** (self.config.bits - 1) - 1
            steps = blocks * (top / scales.clamp_min(torch.finfo(_FLOAT32).tiny))
            levels = (steps + self._uniform(steps)).floor_().clamp_(-top, top).add_(top).to(_UINT8)
            packed = self._packed(levels)
            values = self._values(scales, levels) if feeds else blocks
        if feeds:
            self.owe(key, wanted, values.view(-1).to(wanted.dtype))
        return torch.cat([scales.view(-1).view(_UINT8), packed.view(-1)])

    def decode(self, payload: Tensor, like: Tensor) -> Tensor:
        """Levels times scales."""
        num_blocks = like.numel() // self.block
        aligned = payload[: num_blocks * _SCALE_BYTES].clone()  # it may begin anywhere
        scales = aligned.view(_FLOAT32).view(-1, 1)
        packed = payload[num_blocks * _SCALE_BYTES :].view(num_blocks, -1)
        if self.config.bits == 1:
            return signs(packed).mul_(scales).view(-1).to(like.dtype)
        return self._values(scales, self._unpacked(packed)).view(-1).to(like.dtype)

    def _values(self, scales: Tensor, levels: Tensor) -> Tensor:
        top = float(2 ** (self.config.bits - 1) - 1)
        return (levels.to(_FLOAT32) - top) * (scales / top)

    def _packed(self, levels: Tensor) -> Tensor:
        if self.config.bits == 8:
            return levels
        each = 8 // self.config.bits
        return (levels.view(levels.shape[0], -1, each) << self._shifts(levels)).sum(
            2, dtype=_UINT8
        )

    def _unpacked(self, packed: Tensor) -> Tensor:
        if self.config.bits == 8:
            return packed
        mask = (1 << self.config.bits) - 1
        return ((packed.unsqueeze(2) >> self._shifts(packed)) & mask).view(packed.shape[0], -1)

    def _shifts(self, like: Tensor) -> Tensor:
        return torch.tensor(list(range(0, 8, self.config.bits)), dtype=_UINT8, device=like.device)

    def _uniform(self, like: Tensor) -> Tensor:
        """Draws of our own: the script's random numbers are not touched."""
        draws = self._draws.get(like.device)
        if draws is None:
            seed = self.config.seed * 1000003 + self.group.rank()
            draws = self._draws[like.device] = torch.Generator(like.device).manual_seed(seed)
        return torch.empty_like(like).uniform_(generator=draws)


def packed_signs(blocks: Tensor) -> Tensor:
    """Eight signs a byte, the first in the lowest bit; a set bit is plus."""
    plus = blocks >= 0
    if plus.device.type == "cpu":
        return torch.from_numpy(np.packbits(plus.numpy(), axis=1, bitorder="little"))
    shifts = torch.arange(8, dtype=_UINT8, device=blocks.device)
    return (plus.view(len(plus), -1, 8).to(_UINT8) << shifts).sum(2, dtype=_UINT8)


def signs(packed: Tensor) -> Tensor:
    """Of each bit: 1 or −1; fresh."""
    table = _signs_of_bytes(packed.device)
    found = table.index_select(0, packed.reshape(-1).to(torch.int32))
    return found.view(len(packed), -1)


@cache
def _signs_of_bytes(device: torch.device) -> Tensor:
    every = torch.arange(256, device=device)[:, None]
    return ((every >> torch.arange(8, device=device)) & 1).to(_FLOAT32) * 2 - 1
