"""Draws that are a worker's own: dropout and the like over its rows, beside the shared numbers.

shared    ●──●──●────────●──●        all workers draw the same, as the script alone would
own             └●──●──●┘            inside a block: generators are exchanged, and back
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor


class OwnDraws:
    """The state of a worker's own generators.

    Args:
        seed: Of the run.
        rank: Of the worker.
        is_off: Whether all draw from the shared generators.

    Attributes:
        states: By device; only those that were used.
    """

    def __init__(self, seed: int, rank: int, *, is_off: bool) -> None:
        self.states: dict[str, Tensor] = {}
        self._seed = seed * 1000003 + rank + 1
        self._is_off, self._is_inside = is_off, False

    @contextlib.contextmanager
    def inside(self, active: bool = True) -> Iterator[None]:
        """Draw from this worker's own generators inside the block."""
        if not active or self._is_inside or self._is_off:
            yield
            return
        generators = _generators()
        shared = [generator.get_state() for generator in generators]
        for generator in generators:
            generator.set_state(self._state(generator))
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False
            for generator, state in zip(generators, shared, strict=True):
                self.states[str(generator.device)] = generator.get_state()
                generator.set_state(state)

    def were_made(self) -> bool:
        """Whether numbers were drawn that the sequential script does not draw."""
        return any(
            not torch.equal(state, self._first_state(device))
            for device, state in self.states.items()
        )

    def _state(self, generator: torch.Generator) -> Tensor:
        state = self.states.get(str(generator.device))
        return self._first_state(generator.device) if state is None else state

    def _first_state(self, device: torch.device | str) -> Tensor:
        return torch.Generator(device).manual_seed(self._seed).get_state()


def _generators() -> list[torch.Generator]:
    """The generators that layers draw from: the CPU's, and the current GPU's if it is in use."""
    found = [torch.default_generator]
    if torch.cuda.is_initialized():
        found.append(torch.cuda.default_generators[torch.cuda.current_device()])
    return found
