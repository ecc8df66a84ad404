"""Orders drawn ahead: while a pass runs, a thread draws the order that the next one will have.

Which order that is, is decided by the seed that the sampler takes from torch's generator when the
next pass begins. As long as nobody else draws before, that seed is foreseen; it is drawn all the
same, and where it is another one, the order is drawn at once, as torch does it.
"""

from __future__ import annotations

import _thread
import os
import queue
from concurrent.futures import Future
from typing import Any

import torch
from torch import Tensor

#: Orders of fewer rows are drawn sooner than they are foreseen.
WORTH = 4096

_Key = tuple[int, int, int]  # process, seed, number of rows


def seed_of(generator: torch.Generator | None = None) -> int:
    """The seed that a sampler of torch's takes."""
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


def order_of(seed: int, total: int) -> Tensor:
    """The order that a sampler of torch's draws with a seed."""
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.randperm(total, generator=generator)


class Ahead:
    """Draws orders in a thread of its own, on the CPU alone: a graph may be captured meanwhile.

    Called with torch functions disabled.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Any] | None = None
        self._process = 0
        self._drawn: dict[int, Future[tuple[_Key, Tensor]]] = {}  # by the number of rows

    def order(self, seed: int, total: int) -> Tensor:
        """The order of a pass that begins."""
        future = self._drawn.pop(total, None)
        process = os.getpid()
        if future is not None and self._process == process:  # a child has no such thread
            key, order = future.result()
            if key == (process, seed, total):
                return order
        return order_of(seed, total)

    def foresee(self, total: int) -> None:
        """A pass has begun: draw what comes if nobody draws before the next one does."""
        if total < WORTH:
            return
        if self._jobs is None or self._process != os.getpid():
            self._process, self._jobs = os.getpid(), queue.SimpleQueue()
            _thread.start_new_thread(_draw_all, (self._jobs,))
        future: Future[tuple[_Key, Tensor]] = Future()
        self._drawn[total] = future
        self._jobs.put((future, torch.default_generator.get_state(), total))


def _draw_all(jobs: queue.SimpleQueue[Any]) -> None:
    while True:
        future, state, total = jobs.get()
        try:
            future.set_result(_drawn(state, total))
        except Exception:  # it is drawn when it is needed
            future.set_result(((0, 0, 0), torch.empty(0)))


def _drawn(state: Tensor, total: int) -> tuple[_Key, Tensor]:
    generator = torch.Generator()
    generator.set_state(state)
    seed_of(generator)  # that of the loader's workers
    seed = seed_of(generator)
    return (os.getpid(), seed, total), order_of(seed, total)
