"""One core: where a GPU's launches are made while it is timed, always the quietest one.

    all threads of the process ──► one core                        put back afterwards
    ▇▇▇▇ probe ▇▇▇▇ probe ▇▇▇▇ probe ▇▇▇▇ …     a stretch of work counts if the core was
             calm       calm     slow           calm before and after it
                                   ╰─ twice: every core is probed, and the quickest is taken

Steps of small models take the processor's time, not the GPU's. Where the system moves the threads
of a step from core to core that time changes by a quarter from second to second; on one core it
stays, until somebody else, on a machine that others share, uses the same silicon.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

#: A core is calm while a probe takes at most so many times what the quick ones take.
CALM = 1.06
_QUICK = 0.05  # of all probes: the quickest of them may have been luck
_REMEMBERED = 2000  # probes, some minutes of timing: clocks of a processor change
PATIENCE_S, _PATIENCE_A_ROW_S = 20.0, 1.5  # of a process, for rows that nothing calm was seen of
_MOST_CORES = 16  # that are looked at together
_PIECES, _CALLS = 3, 150  # of a probe


class Threads:
    """The threads of this process, and the cores on which they may run.

    Args:
        folder: Where the system lists them.
    """

    def __init__(self, folder: Path = Path("/proc/self/task")) -> None:
        self._folder = folder

    def all(self) -> list[int]:
        """Their numbers; none where the system does not tell."""
        try:
            return [int(one.name) for one in self._folder.iterdir()]
        except OSError:
            return []

    def cores_of(self, thread: int = 0) -> set[int]:
        """Where a thread may run, 0 being this one; nowhere if it has ended."""
        try:
            return set(os.sched_getaffinity(thread))
        except OSError:
            return set()

    def put(self, thread: int, cores: set[int]) -> bool:
        """Let a thread run there only; False if it has ended, or the system does not allow it."""
        try:
            os.sched_setaffinity(thread, cores)
        except OSError:
            return False
        return True


class Anywhere:
    """No core in particular: what is timed is the processor itself, or the system cannot."""

    @property
    def notes(self) -> tuple[str, ...]:
        """For a row that was measured so."""
        return ()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Nothing is held."""
        yield

    def calm(self) -> bool:
        """Nothing is probed, so all that is timed counts."""
        return True

    def patience_s(self) -> float:
        """For how long it pays to wait for a calmer moment."""
        return 0.0


class Core(Anywhere):
    """Holds all threads of this process on one core.

    Args:
        threads: Of this process.
        probe: Seconds of a fixed piece of work, here and now.
    """

    def __init__(
        self, threads: Threads | None = None, probe: Callable[[], float] | None = None
    ) -> None:
        self._threads, self._probe = threads or Threads(), probe or dispatching
        self._seen: deque[float] = deque(maxlen=_REMEMBERED)
        self._allowed: list[int] = []
        self._core: int | None = None
        self._quick_s, self._slow, self._turn = 0.0, 0, 0
        self._patience_s = PATIENCE_S

    @staticmethod
    def possible() -> bool:
        """Whether this system lets a process choose."""
        return hasattr(os, "sched_setaffinity") and Path("/proc/self/task").exists()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the threads inside; afterwards they may run where they could before."""
        everywhere = self._threads.cores_of()
        before = {thread: self._threads.cores_of(thread) for thread in self._threads.all()}
        self._allowed = sorted(everywhere)
        try:
            if not self._threads.put(0, everywhere):
                self._allowed = []
            elif self._core not in everywhere or not self._stay():
                self._move()
            yield
        finally:
            for thread in self._threads.all() if self._allowed else ():
                self._threads.put(thread, before.get(thread) or everywhere)
            self._allowed = []

    @property
    def notes(self) -> tuple[str, ...]:
        """For a row that was measured so."""
        if self._core is None:
            return ()
        return ("all threads ran on one core of the processor, the quietest",)

    def calm(self) -> bool:
        """Whether the core is as quick as it can be. Twice not, and another one is taken."""
        if not self._allowed:
            return True
        self._slow = 0 if self._is_quick(self._probed()) else self._slow + 1
        if self._slow < 2:
            return self._slow == 0
        self._move()
        return False

    def patience_s(self) -> float:
        """For how long it pays to wait for a calmer moment; on a machine that has none, not."""
        granted = min(self._patience_s, _PATIENCE_A_ROW_S)
        self._patience_s -= granted
        return granted

    def _stay(self) -> bool:
        self._hold()
        self._learn()
        return self._is_quick(self._probed())

    def _move(self) -> None:
        """To the core that is the quickest now."""
        times: dict[int, float] = {}
        for core in self._candidates():
            self._threads.put(0, {core})
            times[core] = self._probed()
        self._core = min(times, key=times.__getitem__)
        self._slow = 0
        self._learn()
        self._hold()

    def _candidates(self) -> list[int]:
        """Some of many, others each time."""
        step = -(-len(self._allowed) // _MOST_CORES)
        self._turn += 1
        return self._allowed[self._turn % step :: step]

    def _hold(self) -> None:
        if self._core is not None:
            for thread in self._threads.all() or [0]:
                self._threads.put(thread, {self._core})

    def _probed(self) -> float:
        self._seen.append(self._probe())
        return self._seen[-1]

    def _learn(self) -> None:
        ordered = sorted(self._seen)
        self._quick_s = ordered[int(_QUICK * len(ordered))] if ordered else 0.0

    def _is_quick(self, seconds: float) -> bool:
        return seconds <= CALM * self._quick_s


def dispatching() -> float:
    """Seconds of some calls of torch that compute next to nothing, the least of three.

    Like a step of a small model it is Python and torch's dispatcher, and hardly fits the caches.
    """
    left, right = torch.zeros(4), torch.zeros(4)
    best = float("inf")
    for _ in range(_PIECES):
        began = time.perf_counter()
        for _ in range(_CALLS):
            left.add(right)
        best = min(best, time.perf_counter() - began)
    return best
