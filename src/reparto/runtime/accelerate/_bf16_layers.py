"""Layers in bf16, where the user has agreed to it and the processor multiplies in bf16.

Linear layers and convolutions that are trained round what they are given and compute in bf16;
their results are float32 again, so the script never meets another type. Parameters, gradients and
the optimizer's state stay float32, and so does all that is computed without gradients.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

from reparto.runtime.accelerate._ways import Replacement

LAYERS = ("linear", "conv1d", "conv2d", "conv3d")
#: What the processor must have.
ABILITIES = ("avx512_bf16", "amx_bf16", "amx_tile", "bf16")


class Bf16Layers:
    """Linear layers and convolutions in bf16."""

    name = "layers in bf16"

    def __init__(self) -> None:
        self.is_on = False

    def suits(self, step_s: float) -> bool:
        """Any step may be made of layers."""
        return True

    def switch(self, on: bool) -> bool:
        """Round from now on, or not."""
        self.is_on = on
        return True

    def replacements(self) -> list[Replacement]:
        """The functions that torch's layers call, and scripts that have no layers."""
        return [(nn.functional, name, self._rounding) for name in LAYERS]

    def _rounding(self, original: Any) -> Any:
        @functools.wraps(original)
        def layer(input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Any:
            given = (input, weight) if bias is None else (input, weight, bias)
            if not (self.is_on and torch.is_grad_enabled() and all(map(_is_float32, given))):
                return original(input, weight, bias, *args, **kwargs)
            rounded = [tensor.bfloat16() for tensor in given]
            return original(*rounded, *([None] * (3 - len(rounded))), *args, **kwargs).float()

        return layer


def _is_float32(value: Any) -> bool:
    return type(value) in (Tensor, nn.Parameter) and value.dtype is torch.float32


def ways() -> list[Bf16Layers]:
    """Layers in bf16, if the processor has what it takes."""
    has = torch.cpu.get_capabilities()
    if not torch.backends.mkldnn.is_available() or not any(map(has.get, ABILITIES)):
        return []
    return [Bf16Layers()]
