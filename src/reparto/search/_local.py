"""LocalCrew: workers are processes of this machine, which share what was imported and the table.

    conductor ── acquire ──► keeper ── fork, 20 ms ──► worker ── open ──► Ready
              ◄── one socket each: tasks, replies, answers ──►  worker
              ◄── who ended, and how ── keeper

The keeper (`_local_keeper`) is a process of its own, since this one has threads and has computed.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reparto.errors import EngineError
from reparto.search._busy import Busy
from reparto.search._crew import (
    Crew,
    Event,
    FitTask,
    Ready,
    RungReached,
    Task,
    TaskDone,
    TaskFailed,
    WorkerDied,
)
from reparto.search._local_channel import Inbox
from reparto.search._local_keeper import End, Ended, LetGo, Start, Unborn
from reparto.search._local_process import KeeperProcess
from reparto.search._local_worker import Stillborn
from reparto.search._uninterrupted import uninterrupted
from reparto.search._work import Work


@dataclass
class _Worker:
    """A worker, as its crew knows it.

    Attributes:
        inbox: Of its messages.
        doing: The candidate it was given; None if it is idle.
        busy: For how long it has worked on it.
        why: What it was killed for.
        peak_bytes: The most that it has told so far.
    """

    inbox: Inbox
    doing: int | None = None
    busy: Busy = field(default_factory=Busy)
    why: str = ""
    stillborn: Stillborn | None = None
    peak_bytes: int = 0


class LocalCrew(Crew):
    """Workers as processes.

    Args:
        work: What they do. It is pickled once.
        max_workers: At once.
        threads: That each of them may use.
        memory_bytes: That a worker may have of its own beyond what it has when it is ready; None
            for any.
        keeper: One that was started before, for as many threads; closed with the crew.
    """

    restart = 0.2  # a fork: what the first ones imported is there

    def __init__(
        self,
        work: Work,
        *,
        max_workers: int,
        threads: int,
        memory_bytes: int | None,
        keeper: KeeperProcess | None = None,
    ) -> None:
        self.max_workers = max_workers
        self._work, self._threads, self._memory_bytes = work, threads, memory_bytes
        self._workers: dict[int, _Worker] = {}
        self._next = 0
        self._events: list[Event] = []
        self._selector = selectors.DefaultSelector()
        self._keeper: KeeperProcess | None = self._with_work(keeper or KeeperProcess(threads))

    def acquire(self) -> int:
        """Let the keeper start a worker.

        Raises:
            EngineError: If there are as many as there may be.
        """
        alive = sum(not one.why for one in self._workers.values())
        if alive >= self.max_workers:  # those that are being killed are gone in a moment
            raise EngineError(f"there are {self.max_workers} workers already, as many as may be")
        with uninterrupted():
            if self._keeper is None:
                self._keeper = self._with_work(KeeperProcess(self._threads))
            number, self._next = self._next, self._next + 1
            ours, theirs = socket.socketpair()
            one = self._workers[number] = _Worker(Inbox(ours))
            self._selector.register(one.inbox, selectors.EVENT_READ, number)
            with theirs:
                self._keeper.tell(Start(number), theirs.fileno())
        return number

    def give(self, worker: int, task: Task | FitTask) -> None:
        """Send a task."""
        one = self._workers[worker]
        one.doing, one.peak_bytes = task.candidate.number, 0
        one.busy.begin()
        one.inbox.send(task)

    def reply(self, worker: int, go_on: bool) -> None:
        """Send whether to go on."""
        one = self._workers.get(worker)
        if one is None or not one.busy.is_paused:
            return  # it died meanwhile, which is told
        one.busy.resume()
        one.inbox.send(go_on)

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """Take in what workers and their keeper tell."""
        until = time.monotonic() + timeout_s
        while not self._events:
            ready = self._selector.select(max(0.0, until - time.monotonic()))
            with uninterrupted():
                # What a worker has sent comes before what the keeper says of its end.
                for key, _ in sorted(ready, key=lambda each: each[0].data is None):
                    if key.data is None:
                        self._hear_keeper()
                    else:
                        self._hear(key.data)
            if time.monotonic() >= until:
                break
        found, self._events = self._events, []
        return found

    def release(self, worker: int) -> None:
        """Ask it to end."""
        with uninterrupted():
            one = self._workers.pop(worker, None)
            if one is None:
                return  # it died meanwhile
            one.inbox.send(None)
            self._forget(one)
            if self._keeper is not None:
                self._keeper.tell(LetGo(worker))

    def kill(self, worker: int, why: str) -> None:
        """Kill its process, and all that it has started."""
        one = self._workers.get(worker)
        if one is None or one.why:
            return
        with uninterrupted():
            one.why = why
            if self._keeper is not None:
                self._keeper.tell(End(worker))

    def close(self) -> None:
        """Let the keeper end all."""
        with uninterrupted():
            for one in self._workers.values():
                self._forget(one)
            self._workers, self._events = {}, []
            self._drop_keeper()
            self._selector.close()
            self._selector = selectors.DefaultSelector()

    def _with_work(self, keeper: KeeperProcess) -> KeeperProcess:
        try:
            keeper.begin(self._work, self._memory_bytes)
        except BaseException:  # it cannot be pickled
            keeper.close()
            raise
        self._selector.register(keeper.line, selectors.EVENT_READ)
        return keeper

    def _hear(self, number: int) -> None:
        one = self._workers.get(number)
        if one is None:
            return
        messages, is_over = one.inbox.take()
        for message in messages:
            self._told(one, message)
        if is_over:  # the keeper will say why
            with contextlib.suppress(KeyError):
                self._selector.unregister(one.inbox)

    def _told(self, one: _Worker, message: Any) -> None:
        if isinstance(message, Stillborn):
            one.stillborn = message
        elif one.why:
            return  # it is being killed, and that is all that is told of it
        elif isinstance(message, Ready):
            self._events.append(message)
        elif isinstance(message, RungReached):
            one.busy.pause()
            one.peak_bytes = message.peak_bytes
            self._events.append(message)
        elif isinstance(message, TaskDone | TaskFailed):
            one.doing = None
            one.busy.end()
            self._events.append(message)

    def _hear_keeper(self) -> None:
        assert self._keeper is not None
        message = self._keeper.hear()
        if message is None:
            self._lose_keeper()
        elif isinstance(message, Ended | Unborn) and message.worker in self._workers:
            self._ended(message)

    def _ended(self, ended: Ended | Unborn) -> None:
        self._hear(ended.worker)
        one = self._workers.pop(ended.worker)
        self._forget(one)
        text, peak = "", one.peak_bytes
        if isinstance(ended, Unborn):
            one.stillborn = Stillborn(ended.failure, ended.traceback)
        else:
            text, peak = ended.said.strip(), max(one.peak_bytes, ended.peak_bytes)
        is_ours = bool(one.why)
        if one.why:
            why = one.why
        elif one.stillborn is not None:
            why, text = f"could not begin: {one.stillborn.failure}", one.stillborn.traceback
        elif isinstance(ended, Ended) and ended.too_much:
            assert self._memory_bytes is not None
            why, is_ours = f"took more than {_size(self._memory_bytes)} of memory", True
        else:
            assert isinstance(ended, Ended)
            why = _manner(ended.status)
        peak = 0 if one.doing is None else peak
        self._events.append(
            WorkerDied(ended.worker, one.doing, why, is_ours, one.busy.seconds(), peak, text)
        )

    def _lose_keeper(self) -> None:
        """All workers have ended with it."""
        assert self._keeper is not None
        said = self._keeper.said()
        self._selector.unregister(self._keeper.line)
        self._drop_keeper()
        for number, one in list(self._workers.items()):
            self._hear(number)
            why = one.why or "ended with the process that keeps the workers"
            died = WorkerDied(
                number, one.doing, why, bool(one.why), one.busy.seconds(), one.peak_bytes, said
            )
            self._events.append(died)
            self._forget(one)
        self._workers = {}

    def _drop_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
            self._keeper = None

    def _forget(self, one: _Worker) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(one.inbox)
        one.inbox.close()


def _manner(status: int) -> str:
    if status >= 0:
        return f"left with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    memory = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{memory}"


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.0f} MB"
