"""Tables of small functions, written so that one case is one line.

    "focal": case("s:b,4 i3:b", lambda z, y: ...)

The first word says what the function is given: ``s`` a floating tensor shared out, ``n`` one
whose gradient is not asked for, ``i3`` numbers below 3, ``m`` a mask, ``u`` numbers between 0 and
1; in capitals the same as replicated tensors, ``P`` for parameters. ``b`` is the size of the
batch, and ``b,4@1`` shares out along dimension 1.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from reparto.testing import Given, assert_alike

#: Workers and batch: unequal slices, one row each, ghosts.
SIZES = [(2, 7), (3, 10), (4, 3), (3, 2), (2, 1), (4, 7)]
FEW = [(2, 7), (4, 3), (3, 1)]


@dataclass(frozen=True)
class Case:
    given: str
    function: Callable[..., Any]
    sizes: list[tuple[int, int]] = field(default_factory=lambda: SIZES)
    options: dict[str, Any] = field(default_factory=dict)

    def run(self) -> None:
        for size, batch in self.sizes:
            given = made(self.given, batch)
            torch.manual_seed(5)
            try:
                assert_alike(self.function, *given, size=size, **self.options)
            except BaseException as error:
                error.add_note(f"with {size} workers and a batch of {batch}")
                raise


def case(given: str, function: Callable[..., Any], sizes: Any = SIZES, **options: Any) -> Case:
    return Case(given, function, sizes, options)


def kept(given: str, function: Callable[..., Any], sizes: Any = SIZES, **options: Any) -> Case:
    """A case whose result must stay shared out."""
    return Case(given, function, sizes, {"kept": True, **options})


def written(given: str, function: Callable[..., Any], sizes: Any = SIZES, **options: Any) -> Case:
    """A case that writes into what it is given."""
    return Case(given, function, sizes, {"writes": True, **options})


def table(cases: dict[str, Case]) -> Any:
    """Parametrize a test over a table."""
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def made(given: str, batch: int) -> list[Given]:
    generator = torch.Generator().manual_seed(zlib.crc32(given.encode()) + batch)
    return [_one(word, batch, generator) for word in given.split()]


def _one(word: str, batch: int, generator: torch.Generator) -> Given:
    kind, _, rest = word.partition(":")
    sizes, _, dim = rest.partition("@")
    shape = [_size(one, batch) for one in sizes.split(",") if one]
    shared = int(dim or 0) if kind[0].islower() else None
    letter = kind[0].lower()
    if letter == "i":
        tensor = torch.randint(0, int(kind[1:]), shape, generator=generator)
        return Given(tensor, shared)
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
    if letter == "m":
        return Given(uniform > 0.4, shared)
    if letter == "u":
        return Given(uniform * 0.8 + 0.1, shared, has_grad=True)
    tensor = torch.randn(shape, dtype=torch.float64, generator=generator)
    return Given(tensor, shared, has_grad=letter in "sp")


def _size(text: str, batch: int) -> int:
    if "b" not in text:
        return int(text)
    return batch * int(text.removesuffix("b") or 1)
