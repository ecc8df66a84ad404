"""Threads that take turns: one runs at a time, and hands over where it waits for the others.

    worker 0  ──run──┤wait                     ┌──run──┤wait
    worker 1         └──run──┤wait             │       └──run──…
    worker 2                 └──run──┤wait ────┘

Worker 0 goes on when all others have come to the same place, so a turn around the ring *is* the
barrier. Since only one thread runs at a time, each can have random generators of its own although
torch, Python and numpy keep one a process: they are swapped when the turn passes. A worker that
comes to another place than its peers, or leaves early, is noticed at once and not by a time-out.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from reparto.errors import DisagreementError


class Turns:
    """The ring.

    Args:
        size: Number of threads.
        timeout_s: How long a thread may keep its turn.
        all_generators: Whether Python's and numpy's are swapped too; that takes half a
            millisecond a turn.
    """

    def __init__(self, size: int, timeout_s: float = 60.0, all_generators: bool = False) -> None:
        self.size = size
        self.timeout_s = timeout_s
        self._all = all_generators
        self._changed = threading.Condition()
        self._holder = 0
        self._present = set(range(size))
        self._broken = False
        self._places: list[list[str]] = [[] for _ in range(size)]
        self._states: list[Any] = [random_state(self._all)] * size
        self._ranks: dict[int, int] = {}
        self._waiting: set[int] = set()

    def enter(self, rank: int) -> None:
        """The calling thread becomes a member and waits for its first turn."""
        self._ranks[threading.get_ident()] = rank
        self._take(rank)

    def leave(self, rank: int) -> None:
        """The calling thread has ended; the others go on."""
        self._present.discard(rank)
        self._pass_on(rank)

    def abort(self) -> None:
        """Wake up all others with an error."""
        with self._changed:
            self._broken = True
            self._changed.notify_all()

    def wait_at(self, place: str) -> None:
        """Wait until all threads have come here.

        Raises:
            DisagreementError: If another thread has come somewhere else, or has ended.
            threading.BrokenBarrierError: If another thread has failed.
        """
        rank = self._ranks[threading.get_ident()]
        self._places[rank].append(place)
        self._hand_over(rank)
        number = len(self._places[rank])
        while any(len(self._places[other]) < number for other in self._waiting):
            self._hand_over(rank)  # one that waits for a message has yet to come here
        self._compare(rank, place)

    def wait_until(self, is_there: Callable[[], bool]) -> bool:
        """Let the others go on until something is there; says whether it came."""
        rank = self._ranks[threading.get_ident()]
        self._waiting.add(rank)
        try:
            for _ in range(1000):
                if is_there():
                    return True
                self._hand_over(rank)
            return False
        finally:
            self._waiting.discard(rank)

    def _hand_over(self, rank: int) -> None:
        self._states[rank] = random_state(self._all)
        self._pass_on(rank)
        self._take(rank)

    def _compare(self, rank: int, place: str) -> None:
        number = len(self._places[rank])
        for other, places in enumerate(self._places):
            if len(places) < number:
                raise DisagreementError(f"worker {rank} waits at {place}; worker {other} ended")
            if places[number - 1] != place:
                there = places[number - 1]
                raise DisagreementError(
                    f"worker {rank} waits at {place}, worker {other} at {there}"
                )

    def _pass_on(self, rank: int) -> None:
        with self._changed:
            for step in range(1, self.size + 1):
                follower = (rank + step) % self.size
                if follower in self._present:
                    self._holder = follower
                    break
            self._changed.notify_all()

    def _take(self, rank: int) -> None:
        with self._changed:
            came = self._changed.wait_for(
                lambda: self._broken or self._holder == rank, self.timeout_s
            )
        if self._broken or not came:
            raise threading.BrokenBarrierError
        set_random_state(self._states[rank])


class Place:
    """A barrier of threads that take turns, with the methods of ``threading.Barrier``.

    Args:
        turns: The ring.
        name: What is waited for.
    """

    def __init__(self, turns: Turns, name: str) -> None:
        self.turns, self.name = turns, name

    def wait(self, timeout: float | None = None) -> int:
        """Wait for all threads."""
        self.turns.wait_at(self.name)
        return 0

    def wait_until(self, is_there: Callable[[], bool]) -> bool:
        """Let the other threads go on until something is there."""
        return self.turns.wait_until(is_there)

    def abort(self) -> None:
        """Wake up all others with an error."""
        self.turns.abort()


def random_state(all_generators: bool = True) -> tuple[Any, ...]:
    """The state of torch's generator, and of Python's and numpy's."""
    if not all_generators:
        return (torch.default_generator.get_state(),)
    return torch.default_generator.get_state(), random.getstate(), np.random.get_state()


def set_random_state(state: tuple[Any, ...]) -> None:
    """Take up such a state."""
    torch.default_generator.set_state(state[0])
    if len(state) > 1:
        random.setstate(state[1])
        np.random.set_state(state[2])
