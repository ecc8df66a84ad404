"""Fewer threads than cores: handing out short work can take longer than doing it."""

from __future__ import annotations

import os

import torch

from reparto.runtime.accelerate._ways import Replacement

#: Handing out takes microseconds: longer steps than that are better shared out.
LONGEST_S = 0.05
#: By these the user has chosen.
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


class FewerThreads:
    """So many threads.

    Args:
        count: How many.
        name: In words.
    """

    def __init__(self, count: int, name: str) -> None:
        self.name = name
        self._count, self._before = count, count

    def suits(self, step_s: float) -> bool:
        """Only steps that are short."""
        return step_s < LONGEST_S

    def switch(self, on: bool) -> bool:
        """Compute with fewer threads from now on, or with as many as before."""
        now = torch.get_num_threads()
        if on:
            if now <= self._count:
                return False
            self._before = now
            torch.set_num_threads(self._count)
        elif now == self._count:
            torch.set_num_threads(self._before)
        else:
            return False
        return True

    def replacements(self) -> list[Replacement]:
        """None."""
        return []


def ways() -> list[FewerThreads]:
    """Half of the threads, and one; none where the user has said how many."""
    if any(os.environ.get(name) for name in _VARIABLES):
        return []
    count = torch.get_num_threads()
    fewer = sorted({count // 2, 1} - {0, count}, reverse=True)
    return [FewerThreads(one, f"{one} of {count} threads") for one in fewer]
