"""Distances between two records. Only measures; what is too far is decided in ``_judge``.

Every distance is relative, and the question is to what. A gradient whose true value is zero is
rounding noise, and noise over noise is 1. So the divisor of a gradient is never below a small part
of the largest gradient that this optimizer has seen: rounding errors are that small relative to
the terms of the sum, while a mistake (a sum for a mean, a missing term) is as large as the
gradient itself and stays visible down to the level of rounding.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Literal

import torch
from torch import Tensor

from reparto.runtime._record import Entry, Record

Precision = Literal["float64", "float32"]
#: Owner, step, and which of several gradients of that step (LBFGS asks for many).
GradientKey = tuple[str, int, int]

#: The least divisor: relative to the largest gradient of the run, and absolute.
_GRADIENT_FLOOR: Mapping[Precision, tuple[float, float]] = {
    "float64": (1e-6, 1e-8),
    "float32": (1e-2, 1e-6),
}
_SCALAR_FLOOR: Mapping[Precision, float] = {"float64": 1e-5, "float32": 1e-2}


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How far two entries, or two tensors, are apart.

    Attributes:
        order: When it happened in the sequential script, to tell what came first.
        distance: Infinite where they cannot be compared.
        problem: Why they cannot; empty where they can.
        sequential: The sequential number: a scalar, or the norm of a gradient's finite part.
        shared: The shared-out number.
        shape: Of a tensor.
        nan: Whether both sides hold NaN, so that less than everything is compared.
    """

    order: float
    distance: float
    problem: str = ""
    sequential: float | None = None
    shared: float | None = None
    shape: tuple[int, ...] = ()
    nan: bool = False


@dataclass(frozen=True, kw_only=True)
class Distances:
    """All gaps between two records.

    Attributes:
        gradients: By owner, step and number within the step.
        losses: By number, from 1.
        values: By number, from 1.
        tensors: By name.
        nan_at: Order of the first entry that is NaN on both sides alike; None if none is.
    """

    gradients: Mapping[GradientKey, Gap] = field(default_factory=dict)
    losses: Mapping[int, Gap] = field(default_factory=dict)
    values: Mapping[int, Gap] = field(default_factory=dict)
    tensors: Mapping[str, Gap] = field(default_factory=dict)
    nan_at: float | None = None

    def all_gaps(self) -> list[Gap]:
        """Every gap, of all kinds."""
        kinds = (self.gradients, self.losses, self.values, self.tensors)
        return [gap for gaps in kinds for gap in gaps.values()]


def compare(sequential: Record, shared: Record, precision: Precision) -> Distances:
    """Measure how far apart two records are.

    Args:
        sequential: The record that is right.
        shared: The record in question.
        precision: In which both were made.
    """
    gradients = _gradients(sequential, shared, precision)
    losses = _scalars(sequential.of_kind("loss"), shared.of_kind("loss"), precision)
    values = _scalars(sequential.of_kind("value"), shared.of_kind("value"), precision)
    nans = [gap.order for gap in (*gradients.values(), *losses.values()) if gap.nan]
    return Distances(
        gradients=gradients,
        losses=losses,
        values=values,
        tensors=_states(sequential.state(), shared.state()),
        nan_at=min(nans, default=None),
    )


def difference(a: Tensor, b: Tensor) -> Tensor:
    """|a − b|, in float64: 0 where both are NaN or infinite alike, infinite where only one is."""
    a, b = _wide(a), _wide(b)
    alike = (a == b) | (a.isnan() & b.isnan())
    return torch.where(alike, 0.0, (a - b).abs()).nan_to_num(nan=math.inf)


def gradient_entries(record: Record) -> dict[GradientKey, Entry]:
    """All gradients of a record."""
    found: dict[GradientKey, Entry] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for entry in record.of_kind("gradient"):
        owner, step = entry.data["owner"], entry.data["step"]
        seen[owner, step] += 1
        found[owner, step, seen[owner, step]] = entry
    return found


def gradient_pairs(
    sequential: Record, shared: Record, ours: Entry, theirs: Entry
) -> list[tuple[Tensor | None, Tensor | None]]:
    """The tensors of two gradient entries, side by side; sketches where they are large."""
    a, b = sequential.tensors(ours), shared.tensors(theirs)
    return [(a.get(str(index)), b.get(str(index))) for index in range(len(ours.data["shapes"]))]


def _gradients(sequential: Record, shared: Record, precision: Precision) -> dict[GradientKey, Gap]:
    ours, theirs = gradient_entries(sequential), gradient_entries(shared)
    relative, absolute = _GRADIENT_FLOOR[precision]
    gaps: dict[GradientKey, Gap] = {}
    raw: dict[GradientKey, Gap] = {}
    for key, entry in ours.items():
        if key not in theirs:
            problem = "the shared-out script does not make this step"
            gaps[key] = Gap(order=entry.order, distance=math.inf, problem=problem)
        else:
            raw[key] = _gradient(sequential, shared, entry, theirs[key])
    largest: dict[str, float] = {}
    for (owner, _, _), gap in raw.items():
        largest[owner] = max(largest.get(owner, 0.0), gap.sequential or 0.0)
    for key, gap in raw.items():
        divisor = max(gap.sequential or 0.0, relative * largest[key[0]], absolute)
        gaps[key] = replace(gap, distance=gap.distance / divisor)
    last = len(sequential.entries)
    for key, entry in theirs.items():
        if key not in ours:
            problem = "the sequential script does not make this step"
            gaps[key] = Gap(order=last + entry.order, distance=math.inf, problem=problem)
    return dict(sorted(gaps.items(), key=lambda item: item[1].order))


def _gradient(sequential: Record, shared: Record, ours: Entry, theirs: Entry) -> Gap:
    """The gap of one step, not yet divided by a norm."""
    problem = _mismatch(ours, theirs)
    if problem:
        return Gap(order=ours.order, distance=math.inf, problem=problem)
    squares = [0.0, 0.0, 0.0]
    nan = False
    for a, b in gradient_pairs(sequential, shared, ours, theirs):
        if a is None or b is None:
            continue
        nan = nan or bool(a.isnan().any() and b.isnan().any())
        for index, part in enumerate((difference(a, b), _finite(a), _finite(b))):
            squares[index] += float(part.square().sum())
    distance, norm, other = (math.sqrt(square) for square in squares)
    return Gap(
        order=ours.order,
        distance=distance,
        problem="" if math.isfinite(distance) else "NaN or infinite on one side only",
        sequential=norm,
        shared=other,
        nan=nan,
    )


def _mismatch(ours: Entry, theirs: Entry) -> str:
    a, b = ours.data["shapes"], theirs.data["shapes"]
    if len(a) != len(b):
        return f"{len(a)} parameters in the sequential script, {len(b)} in the shared-out one"
    names = ours.data["names"] or [f"parameter {index}" for index in range(len(a))]
    for name, left, right in zip(names, a, b, strict=False):
        if left == right:
            continue
        if left is None:
            return f"{name} has no gradient in the sequential script, one in the shared-out one"
        if right is None:
            return f"{name} has no gradient in the shared-out script, one in the sequential one"
        return f"{name} has the shape {left} in the sequential script, {right} in the other"
    return ""


def _scalars(
    ours: tuple[Entry, ...], theirs: tuple[Entry, ...], precision: Precision
) -> dict[int, Gap]:
    gaps = {}
    for index, (left, right) in enumerate(zip_longest(ours, theirs), start=1):
        a = left.data["value"] if left else None
        b = right.data["value"] if right else None
        order = left.order if left else math.inf
        if a is None or b is None:
            side = "shared-out" if b is None else "sequential"
            gaps[index] = Gap(
                order=order,
                distance=math.inf,
                problem=f"the {side} script reads no more of them",
                sequential=a,
                shared=b,
            )
            continue
        nan = math.isnan(a) and math.isnan(b)
        delta = 0.0 if nan or a == b else abs(a - b)
        lone = not math.isfinite(delta)
        size = max(x for x in (abs(a), abs(b), _SCALAR_FLOOR[precision]) if math.isfinite(x))
        gaps[index] = Gap(
            order=order,
            distance=math.inf if lone else delta / size,
            problem="NaN or infinite on one side only" if lone else "",
            sequential=a,
            shared=b,
            nan=nan,
        )
    return gaps


def _states(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[str, Gap]:
    gaps = {}
    for name in (*ours, *(name for name in theirs if name not in ours)):
        a, b = ours.get(name), theirs.get(name)
        shape = tuple((a if a is not None else theirs[name]).shape)
        if a is None or b is None:
            side = "sequential" if a is None else "shared-out"
            problem = f"the {side} script has no such tensor"
        elif a.shape != b.shape:
            problem = f"{tuple(a.shape)} in the sequential script, {tuple(b.shape)} in the other"
        elif a.numel() == 0:
            problem = ""
        else:
            far = float(difference(a, b).max())
            size = float(_finite(a).max())
            problem = "" if math.isfinite(far) else "NaN or infinite on one side only"
            gaps[name] = Gap(
                order=math.inf, distance=far / (size or 1.0), problem=problem, shape=shape
            )
            continue
        distance = math.inf if problem else 0.0
        gaps[name] = Gap(order=math.inf, distance=distance, problem=problem, shape=shape)
    return gaps


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _finite(tensor: Tensor) -> Tensor:
    return _wide(tensor).abs().nan_to_num(nan=0.0, posinf=0.0)
