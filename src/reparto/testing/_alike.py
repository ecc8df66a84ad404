"""Is a function the same shared out as it is alone? Values, shapes, gradients, side effects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import reparto
from reparto.runtime._current import current
from reparto.runtime._tensors import Shard, Summand, whole
from reparto.testing._workers import run_workers


@dataclass(frozen=True, eq=False)
class Given:
    """A tensor that a function is given.

    Attributes:
        tensor: The global tensor; copied before use.
        dim: The dimension along which it is shared out; None for a replicated tensor.
        has_grad: Whether its gradient is compared, too.
    """

    tensor: Tensor
    dim: int | None = None
    has_grad: bool = False

    def handed_over(self) -> Tensor:
        """A fresh leaf, shared out."""
        leaf = self.tensor.clone()
        if self.dim is not None:
            leaf = reparto.shard(leaf, self.dim)
        return leaf.requires_grad_() if self.has_grad else leaf


def assert_alike(
    function: Callable[..., Any],
    *given: Given,
    size: int,
    kept: bool = False,
    writes: bool = False,
    tolerance: float = 1e-12,
    **options: Any,
) -> None:
    """Make sure that a function gives the same on several workers as it gives alone.

    Compared are the values, types and presented shapes of all results; after a backward pass
    from a weighted sum of them, the gradients of what was given; and the state of torch's
    generator.

    Args:
        function: Called with the tensors that are given.
        *given: Its arguments.
        size: Number of workers.
        kept: Whether every tensor of the result has to stay shared out.
        writes: Whether the function writes into its arguments: it gets copies, which are then
            compared as well.
        tolerance: Largest difference, relative to values above 1.
        **options: Of ``run_workers``.

    Raises:
        AssertionError: If anything differs.
    """
    before = torch.default_generator.get_state()
    alone = _outcome(function, given, writes)
    torch.default_generator.set_state(before)
    for rank, shared in enumerate(
        run_workers(size, lambda: _outcome(function, given, writes), **options)
    ):
        assert alone.keys() == shared.keys(), f"worker {rank}: {alone.keys()} {shared.keys()}"
        for name in alone:
            _assert_same(f"{name} of worker {rank}", alone[name], shared[name], tolerance)
            if kept and name.startswith("result"):
                assert shared[name].kind in (Shard, Summand), f"{name} is not shared out"


@dataclass(frozen=True)
class _Seen:
    """What a script can see of a value."""

    value: Any
    kind: Any
    facts: tuple[Any, ...] = ()


def _outcome(function: Any, given: tuple[Given, ...], writes: bool) -> dict[str, _Seen]:
    leaves = [one.handed_over() for one in given]
    used = [leaf.clone() if writes else leaf for leaf in leaves]
    results = list(_parts(function(*used)))
    seen = {f"result {number}": _seen(part) for number, part in enumerate(results)}
    if writes:
        seen |= {f"argument {number}": _seen(part) for number, part in enumerate(used)}
        results += used
    terms = [part for part in results if isinstance(part, Tensor) and part.requires_grad]
    if terms:
        objective = sum((part * _weights(part)).sum() for part in terms)
        objective.backward()  # type: ignore[union-attr]
    for number, leaf in enumerate(leaves):
        if leaf.requires_grad:
            seen[f"gradient {number}"] = _seen(leaf.grad)
    seen["generator"] = _Seen(torch.default_generator.get_state(), Tensor)
    return seen


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        for part in value:
            yield from _parts(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _parts(part)
    else:
        yield value


def _weights(tensor: Tensor) -> Tensor:
    """Numbers that differ from place to place, so that no two mistakes cancel."""
    shape = [int(size) for size in tensor.shape]
    count = torch.Size(shape).numel()
    return torch.cos(torch.arange(count, dtype=tensor.dtype) * 0.7 + 0.3).reshape(shape)


def _seen(value: Any) -> _Seen:
    if not isinstance(value, Tensor):
        return _Seen(value, type(value))
    shape = tuple(int(size) for size in value.shape)
    counts = (int(value.numel()), value.dim())
    facts: tuple[Any, ...] = (shape, value.dtype, *counts, value.requires_grad)
    if shape:
        facts += (len(value), int(value.size(-1)))
    world = current()
    local = value.detach()
    return _Seen(local if world is None else whole(world, local).clone(), type(value), facts)


def _assert_same(name: str, one: _Seen, two: _Seen, tolerance: float) -> None:
    assert one.facts == two.facts, f"{name}: {two.facts} instead of {one.facts}"
    if not isinstance(one.value, Tensor):
        assert _close(one.value, two.value, tolerance), f"{name}: {two.value} not {one.value}"
        return
    assert two.value.shape == one.value.shape, f"{name}: {two.value.shape} {one.value.shape}"
    if not one.value.is_floating_point() and not one.value.is_complex():
        assert torch.equal(one.value, two.value), f"{name}: {two.value} instead of {one.value}"
        return
    torch.testing.assert_close(
        two.value,
        one.value,
        rtol=tolerance,
        atol=tolerance,
        equal_nan=True,
        msg=lambda m: name + ": " + m,
    )


def _close(one: Any, two: Any, tolerance: float) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return abs(one - two) <= tolerance * max(1.0, abs(one)) or (one != one and two != two)
    return bool(one == two)
