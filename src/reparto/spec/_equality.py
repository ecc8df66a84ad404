"""VerifyResult and its distances: how far the shared-out training is from the sequential one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class StepDistance:
    """The gradient of one step of one optimizer, over all of its parameters.

    Attributes:
        owner: Whose parameters: an optimizer, or ``loose`` for those without one.
        step: Counts how often that owner's gradient was made global: its steps, mostly.
        distance: ‖Δg‖/‖g‖; infinite where the two cannot be compared.
        norm: ‖g‖ of the sequential script.
        limit: What the distance was held against.
    """

    owner: str
    step: int
    distance: float
    norm: float
    limit: float


@dataclass(frozen=True, kw_only=True)
class ScalarDistance:
    """A loss, or another number that the script read from a tensor.

    Attributes:
        index: Counts the losses, or the numbers read, from 1.
        sequential: As the sequential script saw it; None where it saw none.
        shared: As the shared-out script saw it.
        distance: |Δ| relative to the larger of the two.
        limit: What the distance was held against.
    """

    index: int
    sequential: float | None
    shared: float | None
    distance: float
    limit: float


@dataclass(frozen=True, kw_only=True)
class TensorDistance:
    """A parameter or buffer at the end.

    Attributes:
        name: As the runtime names it: model, then the path within it.
        shape: Its shape.
        distance: max|Δ|/max|b|, b the sequential one; absolute where b is zero.
        limit: What the distance was held against.
    """

    name: str
    shape: tuple[int, ...]
    distance: float
    limit: float


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """Where the two runs first part.

    Attributes:
        place: Which step, optimizer, parameter, loss.
        what: What differs, in numbers.
        hint: What such a difference usually means; empty if nothing is known.
    """

    place: str
    what: str
    hint: str = ""


@dataclass(frozen=True, kw_only=True)
class VerifyResult:
    """What ``reparto verify`` found.

    Attributes:
        script: The script.
        verdict: ``equal``; ``unequal``; ``unproven`` if the script made no step, so that nothing
            could be compared; ``unchanged`` for a script that was left as it is, so that there
            is nothing to compare.
        num_workers: Workers of the shared-out side.
        num_steps: Gradient steps that were compared, over all optimizers.
        precision: ``float64``, or ``float32`` for a script that ran in its own precision.
        tolerance: The limit where no noise floor raised it; 0 for one worker.
        seed: The seed of both sides.
        gradients: For each step and optimizer.
        losses: For each backward pass.
        values: For each number that the script read from a tensor.
        tensors: For each parameter and buffer, at the end.
        divergence: Where it first went wrong; None if it did not.
        notes: What else to know: what was judged against a noise floor, what was not copied.
        sequential_s: Seconds that the sequential side took.
        shared_s: Seconds that the shared-out side took.
    """

    script: str
    verdict: Literal["equal", "unequal", "unproven", "unchanged"]
    num_workers: int
    num_steps: int = 0
    precision: Literal["float64", "float32"] = "float64"
    tolerance: float = 1e-7
    seed: int = 0
    gradients: tuple[StepDistance, ...] = ()
    losses: tuple[ScalarDistance, ...] = ()
    values: tuple[ScalarDistance, ...] = ()
    tensors: tuple[TensorDistance, ...] = ()
    divergence: Divergence | None = None
    notes: tuple[str, ...] = ()
    sequential_s: float = 0.0
    shared_s: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether the two are equal, or there is nothing that could differ."""
        return self.verdict in ("equal", "unchanged")
