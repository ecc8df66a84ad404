"""ThreadCrew: workers are threads of this process, each with a `Work` of its own.

For work that is done elsewhere, by processes (a script's runs) or a cluster (Spark): a thread only
waits for it. A thread cannot be killed: `Work.stop` ends what it waits for, and the thread is
forgotten at once; whatever it tells later is not heard.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reparto.errors import EngineError
from reparto.search._busy import Busy
from reparto.search._crew import Crew, Event, FitTask, Ready, RungReached, Task, WorkerDied
from reparto.search._doing import doing, told_of
from reparto.search._work import Work

#: What threads do has so long to end.
CLOSE_S = 10.0


@dataclass
class _Worker:
    """A worker.

    Attributes:
        number: Its own.
        work: What it does.
        asked: What it is to do next: a task, whether to go on, None to end.
        thread: That does it.
        is_heard: Whether it still belongs to the crew.
        doing: The candidate it was given; None if it is idle.
        busy: For how long it has worked on it.
    """

    number: int
    work: Work
    asked: queue.SimpleQueue[Task | FitTask | bool | None] = field(
        default_factory=queue.SimpleQueue
    )
    thread: threading.Thread | None = None
    is_heard: bool = True
    doing: int | None = None
    busy: Busy = field(default_factory=Busy)


class ThreadCrew(Crew):
    """Workers as threads.

    Args:
        make_work: Makes what a worker does; called for each.
        max_workers: At once.
        threads: That the work of each may use.
        host: Where it is done.
    """

    restart = 0.2  # a thread

    def __init__(
        self,
        make_work: Callable[[], Work],
        *,
        max_workers: int,
        threads: int = 1,
        host: str = "",
    ) -> None:
        self.max_workers = max_workers
        self._make_work, self._threads, self._host = make_work, threads, host
        self._workers: dict[int, _Worker] = {}
        self._gone: list[_Worker] = []
        self._next = 0
        self._told: queue.SimpleQueue[tuple[_Worker, Event]] = queue.SimpleQueue()
        self._died: list[Event] = []

    def acquire(self) -> int:
        """Start a thread.

        Raises:
            EngineError: If there are as many as there may be.
        """
        if len(self._workers) >= self.max_workers:
            raise EngineError(f"there are {self.max_workers} workers already, as many as may be")
        number, self._next = self._next, self._next + 1
        one = self._workers[number] = _Worker(number, self._make_work())
        one.thread = threading.Thread(
            target=self._run, args=(one,), name=f"reparto-search-{number}", daemon=True
        )
        one.thread.start()
        return number

    def give(self, worker: int, task: Task | FitTask) -> None:
        """Hand over a task."""
        one = self._workers.get(worker)
        if one is not None:
            one.doing = task.candidate.number
            one.busy.begin()
            one.asked.put(task)

    def reply(self, worker: int, go_on: bool) -> None:
        """Let it know."""
        one = self._workers.get(worker)
        if one is not None and one.busy.is_paused:
            one.busy.resume()
            one.asked.put(go_on)

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """Take in what threads have told."""
        found, self._died = self._died, []
        until = time.monotonic() + timeout_s
        while True:
            left_s = 0.0 if found else until - time.monotonic()
            try:
                one, event = (
                    self._told.get(timeout=left_s) if left_s > 0 else self._told.get(False)
                )
            except queue.Empty:
                return found
            if one.is_heard:
                self._hear(one, event)
                found.append(event)

    def release(self, worker: int) -> None:
        """Let a thread end."""
        one = self._workers.pop(worker, None)
        if one is not None:
            one.is_heard = False
            one.asked.put(None)
            self._gone.append(one)

    def kill(self, worker: int, why: str) -> None:
        """Stop what it does, and hear no more of it."""
        one = self._workers.pop(worker, None)
        if one is None:
            return
        one.is_heard = False
        self._died.append(WorkerDied(worker, one.doing, why, True, one.busy.seconds()))
        self._stop(one)

    def close(self) -> None:
        """Stop all, and wait for them, but not for ever."""
        for one in self._workers.values():
            one.is_heard = False
            self._stop(one)
        self._workers, self._died = {}, []
        until = time.monotonic() + CLOSE_S
        for one in self._gone:
            if one.thread is not None:
                one.thread.join(max(0.0, until - time.monotonic()))
        self._gone = [one for one in self._gone if one.thread and one.thread.is_alive()]

    def _stop(self, one: _Worker) -> None:
        one.asked.put(False)  # it may wait for a reply
        one.asked.put(None)
        if one.doing is not None:
            one.work.stop()
        self._gone.append(one)

    def _hear(self, one: _Worker, event: Event) -> None:
        if isinstance(event, RungReached):
            one.busy.pause()
        elif isinstance(event, WorkerDied):
            one.is_heard = False
            self._workers.pop(one.number, None)
        else:
            one.doing = None
            one.busy.end()

    def _run(self, one: _Worker) -> None:
        """What a thread does."""
        try:
            one.work.load()
            one.work.open(self._threads)
        except BaseException as error:  # the top of a worker: whatever it is, it is told
            failure, text = told_of(error)
            why = f"could not begin: {failure}"
            self._told.put((one, WorkerDied(one.number, None, why, traceback=text)))
            return
        self._told.put((one, Ready(one.number, self._host)))
        while (task := one.asked.get()) is not None:
            if isinstance(task, Task | FitTask) and one.is_heard:
                self._told.put((one, self._do(one, task)))
        one.work.close()

    def _do(self, one: _Worker, task: Task | FitTask) -> Event:
        steps = doing(one.number, one.work, task)
        try:
            told = next(steps)
            while True:
                self._told.put((one, told))
                told = steps.send(one.asked.get() is True and one.is_heard)
        except StopIteration as ended:
            event: Event = ended.value
            return event
