"""SupervisedRun: looks after workers, wherever they are, and judges how they end.

    worker 0   stdout ──┐
               stderr ──┼─► pipes ──► SupervisedRun.poll ──► events ──► whoever asked
    worker k   events ──┘                  │
               stdout, stderr ──► scratch/rank-k.log

A run ends in one of these ways:

    running ──all have left──────────────────────────────────────────► ended
       ├──worker 0 has left──► lingering (others get a while) ──┐
       ├──a worker failed────► failing (a moment for its cause) ┼─ SIGTERM ─ SIGKILL ─► ended
       └──stop()──────────────── SIGINT ────────────────────────┘
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from reparto.engines._base import Launch, Run
from reparto.engines._scratch import Scratch
from reparto.engines._verdict import conclude, death, first_failure, is_echo
from reparto.engines._worker import Stream, Worker
from reparto.errors import EngineError
from reparto.spec import (
    Assignment,
    Begin,
    Done,
    Event,
    Failed,
    Failure,
    Note,
    Output,
    Step,
    StepRecord,
    Stopping,
)

TICK_S = 0.05  # how often workers are looked after
ECHO_GRACE_S = 2.0  # a broken connection waits that long for the failure that broke it
MAIN_GRACE_S = 1.5  # worker 0 may come to the same end, and finish saying why
KILL_AFTER_S = 1.0
STOP_GRACE_S = 2.3  # after Ctrl-C, a script may save what it has
SAVE_S = 30.0  # when all have agreed on a last step, that long for its checkpoint and the rest
LINGER_S = 5.0
CHUNK = 1 << 16


class SupervisedRun(Run):
    """The workers of a launch, under a small supervisor on this machine.

    To add an engine, say how workers are started and how they get their assignment; a worker is
    whatever has the interface of `Worker`.

    Args:
        launch: What to start.
    """

    stop_grace_s = STOP_GRACE_S

    def __init__(self, launch: Launch) -> None:
        self._launched_at = time.time()
        self._scratch = Scratch(len(launch.workers))
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._assigned = False
        self._stopped = False
        self._failed_at: float | None = None
        self._main_left_at: float | None = None
        self._kill_at: float | None = None
        self._killed_at: float | None = None
        self._ask_again_at: float | None = None
        self._begin_s = 0.0
        self._last_step: StepRecord | None = None
        self._notes: list[str] = []
        try:
            self._start(launch)
        except BaseException as error:
            self.stop(now=True)
            self.wait()
            if not isinstance(error, OSError):
                raise
            started = len(self._workers)
            raise EngineError(f"worker {started} could not be started: {error}") from error

    @abstractmethod
    def _start(self, launch: Launch) -> None:
        """Start all workers, and `_take_in` each one."""

    @abstractmethod
    def _hand_over(self, assignment: Assignment) -> None:
        """Bring the assignment to where the workers can read it, and tell them to go."""

    def _wind_up(self) -> None:
        """All workers have ended; a last word to the hosts, before the result is told."""

    def _take_in(self, worker: Worker) -> None:
        self._workers.append(worker)
        for stream, pipe in worker.pipes.items():
            self._selector.register(pipe, selectors.EVENT_READ, (worker.rank, stream))

    def assign(self, assignment: Assignment) -> None:
        """Hand the assignment to the workers that stand by."""
        assert not self._assigned, "a run is assigned once"
        self._assigned = True
        self._hand_over(assignment)

    def poll(self, timeout_s: float) -> list[Event]:
        """Wait for what happens next; see `Run.poll`."""
        until = time.monotonic() + timeout_s
        events: list[Event] = []
        while not events and self.result is None:
            remaining = until - time.monotonic()
            events += self._read(min(max(remaining, 0.0), TICK_S))
            events += self._reap()
            self._look_after()
            if remaining <= 0:
                break
        return events

    def stop(self, *, now: bool = False) -> None:
        """End all workers: SIGINT, as from the keyboard, then SIGKILL.

        Workers that train end after a step and say so; others are asked once more, and then end
        wherever they are.
        """
        if not self._stopped and self.result is None:
            self._stopped = True
            self._ask_again_at = time.monotonic() + self.stop_grace_s / 3
        self._end(signal.SIGINT, self.stop_grace_s)
        if now or not self._assigned:  # standing by, it has nothing to close
            self._kill_at = 0.0

    def logs(self, rank: int) -> str:
        """Return the end of what a worker other than 0 wrote."""
        return self._scratch.tail(rank)

    # ------------------------------------------------------------------ what workers tell

    def _read(self, timeout_s: float) -> list[Event]:
        events: list[Event] = []
        for key, _ in self._selector.select(timeout_s):
            rank, stream = key.data
            events += self._read_pipe(rank, stream, key.fileobj)
        for event in events:
            self._take_note(event)
        return events

    def _read_pipe(self, rank: int, stream: Stream, pipe: Any) -> list[Event]:
        data = os.read(pipe.fileno(), CHUNK)
        if not data:
            self._selector.unregister(pipe)
            pipe.close()
            return []
        if stream == "events":
            return self._workers[rank].decode(data)
        return [Output(rank=rank, stream=stream, data=data)]

    def _take_note(self, event: Event) -> None:
        worker = self._workers[event.rank]
        if isinstance(event, Begin):
            self._begin_s = max(self._begin_s, event.time_s - self._launched_at)
        elif isinstance(event, Step):
            self._last_step = event.record if event.rank == 0 else self._last_step
        elif isinstance(event, Note):
            self._notes.append(event.text)
        elif isinstance(event, Stopping):
            self._wait_for(event)
        elif isinstance(event, Done):
            worker.done = event
            if event.exit_code != 0:
                worker.fail(death(event.rank, worker.host, event.exit_code, **self._when(worker)))
        elif isinstance(event, Failed):
            worker.fail(event.failure)

    def _wait_for(self, event: Stopping) -> None:
        if not self._kill_at:
            return  # it is to end at once
        if event.step == 0:  # it is asked again only if no step ends within the time of two
            self._ask_again_at = time.monotonic() + 2 * event.in_s + 1.0
            self._kill_at = self._ask_again_at + self.stop_grace_s
        else:
            self._ask_again_at = None
            self._kill_at = time.monotonic() + 2 * event.in_s + SAVE_S

    def _when(self, worker: Worker) -> dict[str, Any]:
        step = self._last_step.step if self._last_step is not None else 0
        return {"step": step, "time_s": time.time(), "log": self._scratch.tail(worker.rank)}

    # ---------------------------------------------------------------- how processes end

    def _reap(self) -> list[Event]:
        events: list[Event] = []
        for worker in self._workers:
            if worker.status is not None or not worker.has_died():
                continue
            events += self._drain(worker)
            well = worker.failure is None and worker.done is not None and not self._stopped
            # What it started may outlive the script if all went well, as with plain Python.
            worker.reap(sweep=not well or worker.rank > 0)
            silent = worker.failure is None and worker.done is None
            if silent and worker.status != 0 and self._kill_at is None:
                failure = death(worker.rank, worker.host, worker.status or 0, **self._when(worker))
                worker.fail(failure)
                events.append(Failed(rank=worker.rank, failure=failure))
        return events

    def _drain(self, worker: Worker) -> list[Event]:
        """Read what is left in the pipes of a dead worker; others may hold them open."""
        events: list[Event] = []
        for stream, pipe in worker.pipes.items():
            while not pipe.closed:
                with selectors.DefaultSelector() as ready:
                    ready.register(pipe, selectors.EVENT_READ)
                    if not ready.select(0):
                        self._selector.unregister(pipe)
                        pipe.close()
                        break
                events += self._read_pipe(worker.rank, stream, pipe)
        for event in events:
            self._take_note(event)
        return events

    def _look_after(self) -> None:
        now = time.monotonic()
        if all(worker.status is not None for worker in self._workers):
            self._conclude()
        elif self._kill_at is not None:
            if self._ask_again_at is not None and now >= self._ask_again_at:
                self._ask_again_at = None
                self._signal_all(signal.SIGINT)
            if now >= self._kill_at:
                for worker in self._workers:
                    worker.signal(signal.SIGKILL)
        elif failures := self._failures():
            self._failed_at = self._failed_at or now
            if now >= self._failed_at + self._grace_s(failures):
                self._end(signal.SIGTERM)
        elif self._workers[0].status is not None:
            self._main_left_at = self._main_left_at or now
            if now >= self._main_left_at + LINGER_S:
                self._end(signal.SIGTERM)

    def _is_overdue(self, limit_s: float) -> bool:
        """Whether workers were to be killed so long ago, and some are still not told as dead."""
        now = time.monotonic()
        if self.result is not None or self._kill_at is None or now < self._kill_at:
            return False
        self._killed_at = self._killed_at or now
        return now >= self._killed_at + limit_s

    def _failures(self) -> list[Failure]:
        return [worker.failure for worker in self._workers if worker.failure is not None]

    def _grace_s(self, failures: Sequence[Failure]) -> float:
        if all(is_echo(failure) for failure in failures):
            return ECHO_GRACE_S
        main = self._workers[0]
        return 0.0 if main.failure or main.status is not None else MAIN_GRACE_S

    def _end(self, how: signal.Signals, grace_s: float = KILL_AFTER_S) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + grace_s
            self._signal_all(how)

    def _signal_all(self, how: signal.Signals) -> None:
        for worker in reversed(self._workers):  # worker 0, who decides when all end, comes last
            if worker.failure is None:  # one that failed is on its way out
                worker.signal(how)

    def _conclude(self) -> None:
        self._wind_up()
        failure = first_failure(self._failures())
        main = self._workers[0].done if self._workers else None
        kept = self._scratch.remove(keep_logs=failure is not None and not self._stopped)
        if kept:
            self._notes.append(f"the other workers' output is kept in {kept}")
        self._selector.close()
        self.result = conclude(
            num_workers=len(self._workers),
            failure=failure,
            stopped=self._stopped,
            exit_code=main.exit_code if main else 0,
            summary=main.summary if main else None,
            others=[one.done.summary for one in self._workers[1:] if one.done is not None],
            last_step=self._last_step,
            total_s=time.time() - self._launched_at,
            startup_s=self._begin_s,
            notes=tuple(dict.fromkeys(self._notes)),
        )
