"""LocalEngine: workers as processes of this machine, under a small supervisor.

    worker 0   stdout ──┐
               stderr ──┼─► pipes ──► LocalRun.poll ──► events ──► whoever asked
    worker k   events ──┘                  │
               stdout, stderr ──► scratch/rank-k.log
    control pipe of each: "go" when the assignment is there; EOF when we are gone

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
import socket
import sys
import time
from typing import Any

from reparto.engines._base import Engine, Launch, Run, WorkerLaunch
from reparto.engines._environment import worker_environments
from reparto.engines._process import Stream, WorkerProcess
from reparto.engines._scratch import Scratch
from reparto.engines._verdict import conclude, death, first_failure, is_echo
from reparto.errors import EngineError, UsageError
from reparto.measure import local_host
from reparto.spec import (
    Assignment,
    Begin,
    Cluster,
    Done,
    Event,
    Failed,
    Failure,
    Note,
    Options,
    Output,
    Plan,
    Program,
    Step,
    StepRecord,
    to_json,
)

TICK_S = 0.05  # how often processes are looked after
ECHO_GRACE_S = 1.0  # a broken connection waits that long for the failure that broke it
MAIN_GRACE_S = 0.5  # worker 0 may come to the same end, and finish saying why
KILL_AFTER_S = 1.0
LINGER_S = 5.0
CHUNK = 1 << 16


class LocalEngine(Engine):
    """Runs workers on this machine."""

    kind = "local"

    def __init__(self, *, address: str = "", ship: tuple[str, ...] = ()) -> None:
        super().__init__(address=address, ship=ship)
        if address:
            raise UsageError(
                "the local engine has no address", remedy="leave out --address, or --engine ray"
            )

    def cluster(self) -> Cluster:
        """This machine alone."""
        return Cluster(hosts=(local_host(),))

    def prepare(
        self, program: Program | None, plan: Plan, cluster: Cluster, options: Options
    ) -> Launch:
        """Decide the command and the environment of each worker."""
        enter = {host.name: host.enter for host in cluster.hosts}
        # -P: the user's folder does not come on the path before torch is imported.
        command = (sys.executable, "-P", "-m", "reparto.runtime.worker")
        environments = worker_environments(program, plan, cluster, options, os.environ)
        workers = tuple(
            WorkerLaunch(rank=rank, host=name, command=(*enter[name], *command), env=env)
            for rank, (name, env) in enumerate(zip(plan.placement, environments, strict=True))
        )
        return Launch(engine=self.kind, workers=workers, ship=self.ship)

    def start(self, launch: Launch) -> Run:
        """Start the processes."""
        return LocalRun(launch)


class LocalRun(Run):
    """The workers of a launch, as processes of this machine."""

    def __init__(self, launch: Launch) -> None:
        self._launched_at = time.time()
        self._scratch = Scratch(len(launch.workers))
        self._selector = selectors.DefaultSelector()
        self._workers: list[WorkerProcess] = []
        self._assigned = False
        self._stopped = False
        self._failed_at: float | None = None
        self._main_left_at: float | None = None
        self._kill_at: float | None = None
        self._begin_s = 0.0
        self._last_step: StepRecord | None = None
        self._notes: list[str] = []
        try:
            self._start(launch)
        except OSError as error:
            self.stop()
            self.wait()
            started = len(self._workers)
            raise EngineError(f"worker {started} could not be started: {error}") from error

    def _start(self, launch: Launch) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as server:
            env = {
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(server.getsockname()[1]),
                "REPARTO_ASSIGNMENT": str(self._scratch.assignment),
                "REPARTO_SINCE_NS": str(int(self._launched_at * 1e9)),
            }
            for worker in launch.workers:
                # Listening since before anyone knows the port: nobody can take it away.
                listen = server if worker.rank == 0 and len(launch.workers) > 1 else None
                self._workers.append(WorkerProcess(worker, launch.cwd, env, listen, self._scratch))
                for stream, pipe in self._workers[-1].pipes.items():
                    self._selector.register(pipe, selectors.EVENT_READ, (worker.rank, stream))

    def assign(self, assignment: Assignment) -> None:
        """Hand the assignment to the workers that stand by."""
        assert not self._assigned, "a run is assigned once"
        self._assigned = True
        self._scratch.write_assignment(to_json(assignment))
        for worker in self._workers:
            worker.go()

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
        """End all workers: SIGINT, as from the keyboard, then SIGKILL."""
        self._stopped = self._stopped or self.result is None
        self._end(signal.SIGINT)
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
            self._last_step = event.record
        elif isinstance(event, Note):
            self._notes.append(event.text)
        elif isinstance(event, Done):
            worker.done = event
            if event.exit_code != 0:
                worker.fail(death(event.rank, worker.host, event.exit_code, **self._when(worker)))
        elif isinstance(event, Failed):
            worker.fail(event.failure)

    def _when(self, worker: WorkerProcess) -> dict[str, Any]:
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

    def _drain(self, worker: WorkerProcess) -> list[Event]:
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
            if now >= self._kill_at:
                for worker in self._workers:
                    worker.signal(signal.SIGKILL)
        elif failures := [worker.failure for worker in self._workers if worker.failure]:
            self._failed_at = self._failed_at or now
            if now >= self._failed_at + self._grace_s(failures):
                self._end(signal.SIGTERM)
        elif self._workers[0].status is not None:
            self._main_left_at = self._main_left_at or now
            if now >= self._main_left_at + LINGER_S:
                self._end(signal.SIGTERM)

    def _grace_s(self, failures: list[Failure]) -> float:
        if all(is_echo(failure) for failure in failures):
            return ECHO_GRACE_S
        main = self._workers[0]
        return 0.0 if main.failure or main.status is not None else MAIN_GRACE_S

    def _end(self, how: signal.Signals) -> None:
        if self._kill_at is None:
            self._kill_at = time.monotonic() + KILL_AFTER_S
            for worker in self._workers:
                if worker.failure is None:  # one that failed is on its way out
                    worker.signal(how)

    def _conclude(self) -> None:
        failures = [worker.failure for worker in self._workers if worker.failure is not None]
        failure = first_failure(failures)
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
            last_step=self._last_step,
            total_s=time.time() - self._launched_at,
            startup_s=self._begin_s,
            notes=tuple(dict.fromkeys(self._notes)),
        )
