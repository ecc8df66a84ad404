"""What is too far: distances against the tolerance, or against what rounding alone does.

The noise floor of a number is its distance between the sequential script and the sequential script
with every parameter moved by one ulp at the start. Training magnifies rounding as it goes on, so
the floor of a step is the largest one up to there. One run may be lucky, above all with a tensor
of few elements that moves at random, so a floor that is exceeded is taken again with other signs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from reparto.spec import ScalarDistance, StepDistance, TensorDistance
from reparto.verify._compare import Distances, Gap, Precision

NOISE_FACTOR = 10.0
#: In float64, a gradient that is so far off at an owner's first step was not moved by rounding.
GROSS = 1e-3
#: So many times beyond the noise floor is no bad luck with the floor.
FAR = 30.0

Kind = Literal["gradient", "loss", "value", "tensor"]
Key = TypeVar("Key")


@dataclass(frozen=True, kw_only=True)
class Excess:
    """A distance that is beyond its limit."""

    kind: Kind
    key: Any
    gap: Gap
    limit: float


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """All distances with their limits.

    Attributes:
        gradients: For each step and optimizer.
        losses: For each backward pass.
        values: For each number read.
        tensors: For each parameter and buffer.
        excesses: What is beyond its limit, the first in time first.
        excused: Names of what is beyond the tolerance but not beyond the noise.
        has_floor: Whether a noise floor was at hand.
    """

    gradients: tuple[StepDistance, ...]
    losses: tuple[ScalarDistance, ...]
    values: tuple[ScalarDistance, ...]
    tensors: tuple[TensorDistance, ...]
    excesses: tuple[Excess, ...]
    excused: tuple[str, ...]
    has_floor: bool = False

    def may_be_noise(self, precision: Precision) -> bool:
        """Whether a noise floor, or one more, could change the verdict."""
        if not self.excesses or any(excess.gap.problem for excess in self.excesses):
            return False
        gross = [
            excess
            for excess in self.excesses
            if excess.kind == "gradient" and excess.key[1] <= 1 and excess.gap.distance > GROSS
        ]
        far = any(excess.gap.distance > FAR * excess.limit for excess in self.excesses)
        return (precision == "float32" or not gross) and not (self.has_floor and far)


def judge(distances: Distances, tolerance: float, noises: Sequence[Distances] = ()) -> Judgement:
    """Hold distances against their limits.

    Args:
        distances: Between the sequential and the shared-out script.
        tolerance: The limit where the noise is smaller.
        noises: Between the sequential script and itself, moved by one ulp; the largest counts.
    """
    gradients = _limits(
        distances.gradients, [_running(noise.gradients) for noise in noises], tolerance
    )
    losses = _limits(distances.losses, [_running(noise.losses) for noise in noises], tolerance)
    values = _limits(distances.values, [_running(noise.values) for noise in noises], tolerance)
    tensors = _limits(distances.tensors, [_plain(noise.tensors) for noise in noises], tolerance)
    kinds: tuple[tuple[Kind, dict[Any, tuple[Gap, float]]], ...] = (
        ("gradient", gradients),
        ("loss", losses),
        ("value", values),
        ("tensor", tensors),
    )
    excesses = [
        Excess(kind=kind, key=key, gap=gap, limit=limit)
        for kind, limited in kinds
        for key, (gap, limit) in limited.items()
        if gap.distance > limit
    ]
    excused = [
        _name(kind, key)
        for kind, limited in kinds
        for key, (gap, limit) in limited.items()
        if tolerance < gap.distance <= limit
    ]
    return Judgement(
        gradients=tuple(
            StepDistance(
                owner=owner,
                step=step,
                distance=gap.distance,
                norm=gap.sequential or 0.0,
                limit=limit,
            )
            for (owner, step, _), (gap, limit) in gradients.items()
        ),
        losses=_scalars(losses),
        values=_scalars(values),
        tensors=tuple(
            TensorDistance(name=name, shape=gap.shape, distance=gap.distance, limit=limit)
            for name, (gap, limit) in tensors.items()
        ),
        excesses=tuple(sorted(excesses, key=lambda excess: excess.gap.order)),
        excused=tuple(excused),
        has_floor=bool(noises),
    )


def _limits(
    gaps: Mapping[Key, Gap], noises: Sequence[Mapping[Key, float]], tolerance: float
) -> dict[Key, tuple[Gap, float]]:
    limits = dict.fromkeys(gaps, tolerance)
    for noise in noises:
        # What the noisy run did not reach is held against the last that it did reach.
        last = max(noise.values(), default=0.0) if len(noise) < len(gaps) else 0.0
        for key in gaps:
            limits[key] = max(limits[key], NOISE_FACTOR * noise.get(key, last))
    return {key: (gap, limits[key]) for key, gap in gaps.items()}


def _running(gaps: Mapping[Key, Gap]) -> dict[Key, float]:
    largest = 0.0
    running = {}
    for key, distance in _plain(gaps).items():
        largest = max(largest, distance)
        running[key] = largest
    return running


def _plain(gaps: Mapping[Key, Gap]) -> dict[Key, float]:
    # Where the noisy run cannot be compared there is no floor: that must excuse nothing.
    return {key: gap.distance for key, gap in gaps.items() if math.isfinite(gap.distance)}


def _scalars(limited: Mapping[int, tuple[Gap, float]]) -> tuple[ScalarDistance, ...]:
    return tuple(
        ScalarDistance(
            index=index,
            sequential=gap.sequential,
            shared=gap.shared,
            distance=gap.distance,
            limit=limit,
        )
        for index, (gap, limit) in limited.items()
    )


def _name(kind: Kind, key: Any) -> str:
    if kind == "gradient":
        return f"gradient of {key[0]} at step {key[1]}"
    return str(key) if kind == "tensor" else f"{kind} {key}"


def summarised(names: Iterable[str], shown: int = 3) -> str:
    """A few names, and how many more there are."""
    all_names = list(names)
    rest = len(all_names) - shown
    return ", ".join(all_names[:shown]) + (f" and {rest} more" if rest > 0 else "")
