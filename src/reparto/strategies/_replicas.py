"""Replicas that differ between rounds: their parameters laid end to end, and where they met last.

anchor ──local steps──► parameters        drift = parameters − anchor, this worker's own
   ▲                        │
   └── anchor + Σ weight·drift ◄─ all workers: the next anchor, the same everywhere
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

from torch import Tensor

from reparto.errors import RefusedError
from reparto.strategies._base import ParameterSet
from reparto.strategies._flat import by_type, laid, spread


class Replica:
    """The trainable tensors of one set, by type and device, and their anchor.

    Args:
        parameters: The set.
    """

    def __init__(self, parameters: ParameterSet) -> None:
        self.parameters = parameters
        if any(tensor.is_complex() for tensor in parameters.tensors):
            raise RefusedError(
                "complex parameters are not averaged yet",
                remedy="take an exact strategy: --strategy all-reduce",
            )
        floating = (tensor for tensor in parameters.tensors if tensor.is_floating_point())
        self.parts = [
            Part(f"{parameters.name}/{number}", tensors, is_first=number == 0)
            for number, tensors in enumerate(by_type(floating))
        ]
        self.num_steps = 0
        self.weight = 0.0

    def stepped(self) -> None:
        """A local step was made with this worker's share of a batch."""
        self.num_steps += 1
        self.weight += self.parameters.share

    def met(self) -> None:
        """Workers agree again; what comes is counted anew."""
        self.num_steps, self.weight = 0, 0.0

    @property
    def mean_weight(self) -> float:
        """This worker's part of all samples since `met` was called; over workers they sum to 1."""
        return self.weight / self.num_steps if self.num_steps else 0.0


class Part:
    """Some tensors of one type on one device, laid end to end.

    Args:
        key: Stands for them, the same on every worker.
        tensors: The tensors.
        is_first: Whether it is the first part of its replica.
    """

    def __init__(self, key: str, tensors: Sequence[Tensor], *, is_first: bool = True) -> None:
        self.key, self.tensors, self.is_first = key, list(tensors), is_first
        self.shapes = [tuple(tensor.shape) for tensor in tensors]
        self.sizes = [prod(shape) for shape in self.shapes]
        self.anchor = self.flat()
        self.left: Tensor | None = None  # what compression has left out of the last drift

    def flat(self) -> Tensor:
        """The tensors end to end; fresh."""
        return laid(self.tensors)

    def drift(self) -> Tensor:
        """How far this replica has gone from the anchor; fresh."""
        return self.flat().sub_(self.anchor)

    def fresh_drift(self) -> Tensor:
        """The drift since the last round, without what that one has left; fresh."""
        return self.drift() if self.left is None else self.drift().sub_(self.left)

    def put(self, flat: Tensor) -> None:
        """Set the tensors."""
        spread(flat, self.tensors)

    def meet_at(self, flat: Tensor) -> None:
        """Set the tensors, and go on from there."""
        self.anchor = flat
        self.put(flat)

    def pieces(self, count: int) -> list[tuple[int, int]]:
        """The whole in so many stretches of about the same length: from, to."""
        total = sum(self.sizes)
        marks = [total * number // count for number in range(count + 1)]
        return list(pairwise(marks))
