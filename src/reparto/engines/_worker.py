"""Worker: what a supervisor knows of a worker and can do to it, wherever that worker runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from signal import Signals
from typing import IO, Literal

from reparto.spec import Done, Event, Failure, decode

Stream = Literal["events", "stdout", "stderr"]


class Worker(ABC):
    """A worker that was started, and what is known of its end.

    Call order: ``go`` once; ``signal`` at any time; when ``has_died`` says so and the pipes are
    read to their end, ``reap``.

    Args:
        rank: Its rank.
        host: The name of its host.

    Attributes:
        pipes: What it tells; ``stdout`` and ``stderr`` of worker 0 only.
        status: As of `subprocess.Popen.returncode`; None until it is reaped.
        done: What it told at its end, if it came to that.
        failure: Its first failure.
    """

    pipes: dict[Stream, IO[bytes]]

    def __init__(self, rank: int, host: str) -> None:
        self.rank, self.host = rank, host
        self.status: int | None = None
        self.done: Done | None = None
        self.failure: Failure | None = None
        self._rest = b""

    def decode(self, data: bytes) -> list[Event]:
        """Cut what came through the pipe into events."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [event for line in lines if (event := decode(self.rank, line)) is not None]

    def fail(self, failure: Failure) -> None:
        """Keep the first failure of this worker."""
        self.failure = self.failure or failure

    @abstractmethod
    def go(self) -> None:
        """Tell the worker that its assignment is there."""

    @abstractmethod
    def has_died(self) -> bool:
        """Whether it has ended, and all that it told is in the pipes."""

    @abstractmethod
    def reap(self, *, sweep: bool) -> None:
        """Take note of how it ended; with ``sweep`` kill what it has left behind."""

    @abstractmethod
    def signal(self, how: Signals) -> None:
        """Send a signal: a polite one to the worker, SIGKILL to all that it started too."""
