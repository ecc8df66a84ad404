"""Products of matrices by oneDNN instead of torch's BLAS.

torch multiplies float32 matrices by MKL, which knows Intel's processors best: on others it may
leave half of their vector units idle. oneDNN, which torch uses for convolutions, does not. There
is no switch for that alone. But where torch is allowed to round the factors to bf16, it asks
oneDNN, and oneDNN rounds only where the processor multiplies matrices in bf16 by itself (AMX).
Elsewhere the products are those of float32, added up in another order. Which of both it is here
is found out by multiplying.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._ways import Replacement

#: float32 adds up this product to within 2e-7 of its norm, bf16 to within 2e-3.
MOST_ERROR = 2e-6
_SIZES = (61, 64, 256)


class Products:
    """Products of matrices by oneDNN.

    Args:
        name: In words.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._setting: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
        self._before, self._is_on = "none", False

    def suits(self, step_s: float) -> bool:
        """Any step may be made of products."""
        return True

    def switch(self, on: bool) -> bool:
        """Ask oneDNN from now on, or BLAS."""
        now = self._setting.fp32_precision
        if on:
            if now not in ("none", "ieee"):
                return False
            self._before, self._setting.fp32_precision = now, "bf16"
        elif now == "bf16":
            self._setting.fp32_precision = self._before
        self._is_on = on
        return on or now == "bf16"

    def replacements(self) -> list[Replacement]:
        """Torch refuses to tell its precision where the setting above was used."""
        return [(torch, "get_float32_matmul_precision", self._asking)]

    def _asking(self, original: Callable[[], str]) -> Callable[[], str]:
        @functools.wraps(original)
        def get_float32_matmul_precision() -> str:
            is_on = self._is_on
            if is_on:
                self.switch(False)
            try:
                return original()
            finally:
                if is_on:
                    self.switch(True)

        return get_float32_matmul_precision


def ways(*, is_relaxed: bool) -> list[Products]:
    """Products by oneDNN, if torch has it, and as float32 unless less will do."""
    if not torch.backends.mkldnn.is_available():
        return []
    way = Products("products of matrices by oneDNN")
    if not way.switch(True):
        return []
    try:
        is_exact = error() < MOST_ERROR
    finally:
        way.switch(False)
    if is_exact:
        return [way]
    return [Products("products of matrices in bf16, by oneDNN")] if is_relaxed else []


def error() -> float:
    """How far products of now are from the true ones, as a share of their norm."""
    return max(_error(a.float() @ b.float(), a @ b) for size in _SIZES for a, b in _factors(size))


def _factors(size: int) -> list[tuple[Tensor, Tensor]]:
    """In the layouts that layers ask for: forward, and for both gradients."""
    generator = torch.Generator().manual_seed(size)
    a, b = (torch.randn(size, size, generator=generator).double() for _ in range(2))
    several = torch.stack((a, b)), torch.stack((b, a))
    return [(a, b), (a, b.t()), (a.t(), b), several]


def _error(found: Tensor, true: Any) -> float:
    return float((found - true).norm() / true.norm())
