"""Ways of computing a step on a CPU that are not torch's own choice: the contract, and the list.

One file a way. What is on the list is tried in a training's first steps (`_tuning.py`) and kept
where it is faster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

#: An attribute that is replaced while a training lasts, and what makes the new one from the old.
Replacement = tuple[Any, str, Callable[[Any], Any]]


class Way(Protocol):
    """Another way of computing the same steps.

    Call order: ``replacements`` once; then ``switch`` on and off by turns, always from the thread
    that trains. Ways are switched on in the order of the list, and off the other way round, so
    each finds what those before it have left.

    Attributes:
        name: In words, as the end of a run tells it.
    """

    name: str

    def suits(self, step_s: float) -> bool:
        """Whether it can help with steps that take so long."""

    def switch(self, on: bool) -> bool:
        """Compute that way from now on, or as before.

        Returns:
            False if the script has made a choice of its own: then that holds, and the way is
            left alone from now on.
        """

    def replacements(self) -> list[Replacement]:
        """What the way has to replace, so that the script notices nothing of it."""


def ways(*, is_relaxed: bool) -> list[Way]:
    """All that this processor and this torch have.

    Args:
        is_relaxed: Whether numbers may have less precision.
    """
    from reparto.runtime.accelerate import _bf16_layers, _fewer_threads, _products

    found: list[Way] = [*_products.ways(is_relaxed=is_relaxed)]
    if is_relaxed:
        found += _bf16_layers.ways()
    return [*found, *_fewer_threads.ways()]
