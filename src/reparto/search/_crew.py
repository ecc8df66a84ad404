"""Crew: workers that are acquired, given tasks, and released. What they do is a `Work`.

conductor ── acquire ──► worker ── open ──────────────► Ready
          ── give(Task) ───────► reach(rung 0) ───────► RungReached
          ── reply(go_on=True) ► reach(rung 1) ───────► RungReached, …
          ── reply(go_on=False)► close ───────────────► TaskDone
          ── give(FitTask) ────► fit ─────────────────► TaskDone(fitted)
          ── release ──────────► close                  (any time: kill ──► WorkerDied)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from reparto.search._work import Fitted, Reached
from reparto.spec import Candidate, Rung


@dataclass(frozen=True)
class Task:
    """Try a candidate, rung by rung; after each the worker waits for a reply."""

    candidate: Candidate
    rungs: tuple[Rung, ...]
    seed: int = 0


@dataclass(frozen=True)
class FitTask:
    """Train a candidate on all rows, and save it in a folder."""

    candidate: Candidate
    folder: str
    seed: int = 0


@dataclass(frozen=True)
class Ready:
    """A worker that was acquired can be given tasks."""

    worker: int
    host: str = ""


@dataclass(frozen=True)
class RungReached:
    """A worker has reached a rung, and waits for `Crew.reply`, also after the last one.

    Attributes:
        worker: Which one.
        number: Of the candidate.
        reached: What it knows.
        busy_s: Seconds since it was given the task, less those that it waited for replies.
        peak_bytes: The most memory of its own so far, beyond what it had before the task.
    """

    worker: int
    number: int
    reached: Reached
    busy_s: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True)
class TaskDone:
    """A worker is idle again: the candidate was given up or is through, or the model is saved."""

    worker: int
    number: int
    fitted: Fitted | None = None
    busy_s: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True)
class TaskFailed:
    """The candidate raised; the worker is idle again."""

    worker: int
    number: int
    failure: str
    traceback: str = ""
    busy_s: float = 0.0
    peak_bytes: int = 0


@dataclass(frozen=True)
class WorkerDied:
    """A worker is gone: it was killed, by us or by others, or could not begin.

    Attributes:
        worker: Which one.
        number: Of the candidate that it worked on; None if it was idle.
        why: For people: ``took more than 2.0 GB``, ``killed by signal 9``, what `Crew.kill` was
            told.
        is_ours: Whether we killed it for what the candidate did (time, memory): to try the same
            again would end the same way.
        traceback: What it said last, if anything.
    """

    worker: int
    number: int | None
    why: str
    is_ours: bool = False
    busy_s: float = 0.0
    peak_bytes: int = 0
    traceback: str = ""


Event = Ready | RungReached | TaskDone | TaskFailed | WorkerDied


class Crew(ABC):
    """Workers of one search. Called by one thread; events come in the order in which they were.

    Attributes:
        max_workers: That there can be at once.
        restart: How many times as long as one of the first a later worker may take to start: the
            place of one that was just ended may not be free at once.
    """

    max_workers: int
    restart: float = 2.0

    @abstractmethod
    def acquire(self) -> int:
        """Begin to start a worker; returns its number at once. `Ready` follows, or `WorkerDied`.

        Raises:
            EngineError: If there can be no more.
        """

    @abstractmethod
    def give(self, worker: int, task: Task | FitTask) -> None:
        """Let an idle worker do something."""

    @abstractmethod
    def reply(self, worker: int, go_on: bool) -> None:
        """Let a worker that has reached a rung go on to the next one, or give the candidate up."""

    @abstractmethod
    def wait(self, timeout_s: float) -> Sequence[Event]:
        """What has happened since the last call; waits so long for the first of it."""

    @abstractmethod
    def release(self, worker: int) -> None:
        """Let go of an idle worker; no event follows."""

    @abstractmethod
    def kill(self, worker: int, why: str) -> None:
        """End a worker, whatever it does; `WorkerDied` follows, and says that it was us."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, at once; no process is left. Can be called twice."""
