"""What makes workers differ in a simulation: steps that vary, workers that crawl or fail.

All is drawn from one seed, so that a simulation can be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

#: Steps that are drawn at once.
BLOCK = 64
#: A worker crawls for so many steps, in the mean.
CRAWLS_FOR = 50


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What goes wrong.

    Attributes:
        jitter: By how much a step's computing varies, as a part of it (lognormal; the mean stays).
        stragglers: Share of the workers that crawl at any time, each for some fifty steps.
        slowdown: How many times as long a crawling worker computes.
        failures_per_hour: Of one worker.
        restart_s: From a failure until training goes on.
        checkpoint_every: Steps; those since the last checkpoint are lost with a worker.
        seed: Of all that is drawn.
    """

    jitter: float = 0.05
    stragglers: float = 0.0
    slowdown: float = 4.0
    failures_per_hour: float = 0.0
    restart_s: float = 30.0
    checkpoint_every: int = 100
    seed: int = 0


class Noise:
    """Draws what troubles so many workers.

    Args:
        trouble: What goes wrong.
        num_workers: How many.
    """

    def __init__(self, trouble: Trouble, num_workers: int) -> None:
        self._trouble, self._size = trouble, num_workers
        computing, failing = np.random.SeedSequence(trouble.seed).spawn(2)
        self._rng, self._fates = np.random.default_rng(computing), np.random.default_rng(failing)
        self._crawls = self._rng.random(num_workers) < trouble.stragglers

    def block(self) -> Vector:
        """How many times as long as usual workers compute: the next `BLOCK` steps of each."""
        shape, sigma = (BLOCK, self._size), self._trouble.jitter
        factors = np.ones(shape)
        if sigma:
            factors = np.exp(sigma * self._rng.standard_normal(shape) - sigma**2 / 2)
        if self._trouble.stragglers:
            factors[self._crawling(shape)] *= self._trouble.slowdown
        return factors

    def steps(self) -> Iterator[Vector]:
        """The same, step by step, without an end."""
        while True:
            yield from self.block()

    def next_failure(self, now: float, num_workers: int = 1) -> float:
        """When one of so many workers fails next; never, where they do not."""
        rate = self._trouble.failures_per_hour * num_workers / 3600
        return now + self._fates.exponential(1 / rate) if rate else math.inf

    def _crawling(self, shape: tuple[int, int]) -> NDArray[np.bool_]:
        share = self._trouble.stragglers
        begin = min(1.0, share / (1 - share) / CRAWLS_FOR)  # as many begin as end
        found = np.empty(shape, dtype=bool)
        for row, drawn in zip(found, self._rng.random(shape), strict=True):
            self._crawls = np.where(self._crawls, drawn >= 1 / CRAWLS_FOR, drawn < begin)
            row[:] = self._crawls
        return found
