"""RayCrew: workers are actors on the nodes of a Ray cluster; the table travels to a node once.

    conductor ── acquire ──► actor somewhere: `Far` ── open ──► Ready
              ── give ─────► begin(task) ──────────► RungReached, TaskDone, …
              ── reply ────► go_on(True) ──────────► the same
              ── kill ─────► its process is killed; so is it if the node dies

Each call returns one event. A model is saved in a folder there; its files come back with that.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from reparto.engines.ray_actors import Lost, RayActor, RayActors
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
from reparto.search._doing import Doing, doing, told_of
from reparto.search._local_memory import Gauge, limit
from reparto.search._memory import free_bytes
from reparto.search._setup import MEMORY_SHARE, num_cores
from reparto.search._work import Work

#: A worker for which there is no room in the cluster is waited for so long.
START_LIMIT_S = 90.0
#: Workers that are let go of have so long to leave nothing behind.
CLOSE_S = 2.0


class Far:
    """A worker, where it is.

    Args:
        worker: Its number.
        work: What it does, without its data.
        threads: That it may use.
        memory_bytes: That it may have of its own; None for its share of what is free there.
        names: Of the arrays that follow, which cannot be written to.
        arrays: The data.
    """

    def __init__(
        self,
        worker: int,
        work: Work,
        threads: int,
        memory_bytes: int | None,
        names: tuple[str, ...],
        *arrays: NDArray[Any],
    ) -> None:
        self._worker, self._work, self._threads = worker, work, threads
        self._memory_bytes = memory_bytes
        self._arrays: Mapping[str, NDArray[Any]] = dict(zip(names, arrays, strict=True))
        self._doing: Doing | None = None
        self._fit: tuple[FitTask, str] | None = None
        self._gauge = Gauge()

    def open(self) -> Event:
        """Get ready."""
        try:
            self._work.unpack(self._arrays)
            self._work.load()
            self._work.open(self._threads)
        except BaseException as error:  # the top of a worker: whatever it is, it is told
            failure, text = told_of(error)
            why = f"could not begin: {failure}"
            return WorkerDied(self._worker, None, why, traceback=text)
        self._gauge.settle()
        self._gauge.ready()
        share = MEMORY_SHARE * free_bytes() * self._threads / num_cores()
        limit(int(share) if self._memory_bytes is None else self._memory_bytes)
        return Ready(self._worker, socket.gethostname())

    def begin(self, task: Task | FitTask) -> tuple[Event, Mapping[str, bytes]]:
        """Begin with a task; what comes of it first, and the files of a model."""
        self._gauge.begin()
        if not isinstance(task, FitTask):
            self._doing = doing(self._worker, self._work, task, self._gauge.peak)
            return self._next(None), {}
        with tempfile.TemporaryDirectory(prefix="reparto-model-") as folder:
            there = replace(task, folder=folder)
            self._doing = doing(self._worker, self._work, there, self._gauge.peak)
            event = self._next(None)
            if not isinstance(event, TaskDone) or event.fitted is None:
                return event, {}
            files = {
                str(path.relative_to(folder)): path.read_bytes()
                for path in Path(folder).rglob("*")
                if path.is_file()
            }
            return replace(event, fitted=replace(event.fitted, folder=task.folder)), files

    def go_on(self, goes_on: bool) -> tuple[Event, Mapping[str, bytes]]:
        """Go on to the next rung, or give the candidate up."""
        return self._next(goes_on), {}

    def _next(self, sent: bool | None) -> Event:
        assert self._doing is not None
        try:
            return next(self._doing) if sent is None else self._doing.send(sent)
        except StopIteration as ended:
            self._doing = None
            self._gauge.settle()
            event: Event = ended.value
            return event

    def close(self) -> None:
        """Let go of all."""
        self._work.close()


@dataclass
class _Worker:
    """A worker, as its crew knows it.

    Attributes:
        actor: It itself.
        promise: Of its next event; None if it waits for us.
        started: When it was acquired; None since it is ready.
        doing: What it was given; None if it is idle.
        busy: For how long it has worked on it.
        peak_bytes: The most that it has told so far.
    """

    actor: RayActor
    promise: Any = None
    started: float | None = None
    doing: Task | FitTask | None = None
    busy: Busy = field(default_factory=Busy)
    peak_bytes: int = 0


class RayCrew(Crew):
    """Workers as Ray's actors.

    Args:
        work: What they do. Its data are put where all workers of a node see them.
        actors: The cluster; closed with the crew.
        max_workers: At once; there are no more than the cluster has CPUs for.
        threads: That each of them may use, and CPUs that are reserved for it.
        memory_bytes: That a worker may have of its own beyond what it has when it is ready; None
            for its share of what is free where it is.

    Raises:
        EngineError: If the cluster has not as many CPUs as one worker wants.
    """

    def __init__(
        self,
        work: Work,
        *,
        actors: RayActors,
        max_workers: int,
        threads: int,
        memory_bytes: int | None,
    ) -> None:
        room = actors.num_cpus() // max(1, threads)
        if room < 1:
            raise EngineError(
                f"the Ray cluster has {actors.num_cpus()} CPUs, and a worker wants {threads}",
                remedy="--threads asks for less, `ray start --num-cpus N` gives more",
            )
        self.max_workers = min(max_workers, room)
        self._actors, self._threads, self._memory_bytes = actors, threads, memory_bytes
        self._work, arrays = work.packed()
        self._names = tuple(arrays)
        self._shared = [*actors.share(arrays).values()]
        self._workers: dict[int, _Worker] = {}
        self._leaving: list[tuple[RayActor, Any]] = []
        self._died: list[Event] = []
        self._next = 0
        self._is_closed = False

    def acquire(self) -> int:
        """Ask the cluster for an actor.

        Raises:
            EngineError: If there are as many as there may be.
        """
        if len(self._workers) >= self.max_workers:
            raise EngineError(f"there are {self.max_workers} workers already, as many as may be")
        number, self._next = self._next, self._next + 1
        actor = self._actors.start(
            Far,
            *(number, self._work, self._threads, self._memory_bytes, self._names),
            shared=self._shared,
            num_cpus=self._threads,
        )
        self._workers[number] = _Worker(actor, actor.call("open"), time.monotonic())
        return number

    def give(self, worker: int, task: Task | FitTask) -> None:
        """Let it begin."""
        one = self._workers.get(worker)
        if one is not None:
            one.doing, one.peak_bytes = task, 0
            one.busy.begin()
            one.promise = one.actor.call("begin", task)

    def reply(self, worker: int, go_on: bool) -> None:
        """Let it know."""
        one = self._workers.get(worker)
        if one is not None and one.busy.is_paused:
            one.busy.resume()
            one.promise = one.actor.call("go_on", go_on)

    def wait(self, timeout_s: float) -> Sequence[Event]:
        """Take in what actors have returned."""
        self._see_off(0.0)
        found, self._died = self._died, []
        waiting = {
            one.promise: number for number, one in self._workers.items() if one.promise is not None
        }
        if not waiting:
            if not found:
                time.sleep(timeout_s)
            return found
        for promise, came in self._actors.wait([*waiting], 0.0 if found else timeout_s):
            found.append(self._heard(waiting[promise], came))
        for number, one in list(self._workers.items()):
            if one.started is not None and time.monotonic() - one.started > START_LIMIT_S:
                found.append(self._lose(number, self._not_given()))
        return found

    def release(self, worker: int) -> None:
        """Let it leave nothing behind, and end."""
        one = self._workers.pop(worker, None)
        if one is not None:
            one.actor.call("close")
            self._leaving.append((one.actor, one.actor.close()))

    def kill(self, worker: int, why: str) -> None:
        """End its process."""
        if worker in self._workers:
            died = self._lose(worker, why)
            self._died.append(replace(died, is_ours=True))

    def close(self) -> None:
        """End all."""
        if self._is_closed:
            return
        self._is_closed = True
        for one in self._workers.values():
            one.actor.kill()
        self._workers, self._died = {}, []
        self._see_off(CLOSE_S)
        self._actors.close()

    def _heard(self, number: int, came: Any) -> Event:
        one = self._workers[number]
        one.promise = None
        if isinstance(came, Lost):
            return self._lose(number, f"was lost: {came}")
        if isinstance(came, Exception):
            return self._failed(number, one, came)
        event, files = came if isinstance(came, tuple) else (came, {})
        if isinstance(event, WorkerDied):
            self._workers.pop(number)
            one.actor.kill()
        elif isinstance(event, Ready):
            one.started = None
        elif isinstance(event, RungReached):
            one.busy.pause()
            one.peak_bytes = event.peak_bytes
        else:
            if isinstance(one.doing, FitTask):
                _write(files, one.doing.folder)
            one.doing = None
            one.busy.end()
        return event  # type: ignore[no-any-return]

    def _failed(self, number: int, one: _Worker, error: Exception) -> Event:
        """A call raised outside of what a candidate may raise: what it returned cannot be sent."""
        failure, text = told_of(error)
        if one.doing is None:
            return replace(self._lose(number, f"could not begin: {failure}"), traceback=text)
        given, busy_s = one.doing.candidate.number, one.busy.seconds()
        one.doing = None
        one.busy.end()
        failure = f"what it has found cannot be sent: {failure}"
        return TaskFailed(number, given, failure, text, busy_s, one.peak_bytes)

    def _lose(self, number: int, why: str) -> WorkerDied:
        one = self._workers.pop(number)
        one.actor.kill()
        given = None if one.doing is None else one.doing.candidate.number
        return WorkerDied(number, given, why, False, one.busy.seconds(), one.peak_bytes)

    def _not_given(self) -> str:
        wanted = "1 CPU" if self._threads == 1 else f"{self._threads} CPUs"
        return f"could not begin: the cluster has not given {wanted} within {START_LIMIT_S:.0f} s"

    def _see_off(self, limit_s: float) -> None:
        """Kill actors that have left nothing behind, or had time enough for that."""
        until = time.monotonic() + limit_s
        while self._leaving:
            left_s = max(0.0, until - time.monotonic())
            promises = [promise for _, promise in self._leaving]
            done = [promise for promise, _ in self._actors.wait(promises, left_s)]
            is_late = limit_s > 0 and left_s <= 0
            for actor, promise in self._leaving:
                if is_late or promise in done:
                    actor.kill()
            self._leaving = [] if is_late else [it for it in self._leaving if it[1] not in done]
            if left_s <= 0:
                return


def _write(files: Mapping[str, bytes], folder: str) -> None:
    """Put a model's files where they were to be saved."""
    for name, data in files.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
