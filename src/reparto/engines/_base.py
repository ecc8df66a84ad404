"""Engine, Launch and Run: where workers run, decided first and then done."""

from __future__ import annotations

import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar

from reparto.spec import Assignment, Cluster, Event, Options, Plan, Program, RunResult


@dataclass(frozen=True, kw_only=True)
class WorkerLaunch:
    """One worker to be started.

    Attributes:
        rank: Its rank.
        host: The name of its host.
        command: What is run there.
        env: What is added to the environment. Ports, pipes and scratch folders are chosen when
            the worker is started and are not in here.
    """

    rank: int
    host: str
    command: tuple[str, ...]
    env: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """All that an engine will start: pure data, printable, comparable.

    Attributes:
        engine: The engine's kind.
        workers: By rank.
        cwd: Folder in which workers start; empty for the current one.
        ship: Paths that travel to hosts that lack them.
    """

    engine: str
    workers: tuple[WorkerLaunch, ...]
    cwd: str = ""
    ship: tuple[str, ...] = ()

    def as_text(self) -> str:
        """Show it as commands, one worker a line."""
        lines = []
        for worker in self.workers:
            env = " ".join(f"{key}={shlex.quote(value)}" for key, value in worker.env.items())
            lines.append(f"[{worker.host}] {env} {shlex.join(worker.command)}")
        return "\n".join(lines)


class Engine(ABC):
    """A place where workers can run: this machine, a Ray cluster.

    Call order: ``cluster``, ``prepare`` as often as wanted, ``start``, then `Run.assign`; at last
    ``close``. An engine is used from one thread, and that thread has to outlive the run: workers
    die with it.

    To add one, write a file with a subclass and name it in the table of ``engines/__init__.py``
    (another package: in the entry-point group ``reparto.engines``).

    Args:
        address: Where the cluster is; engines without addresses refuse one.
        ship: Paths that travel to hosts that lack them.
    """

    kind: ClassVar[str]

    def __init__(self, *, address: str = "", ship: tuple[str, ...] = ()) -> None:
        self.address = address
        self.ship = ship

    @abstractmethod
    def cluster(self) -> Cluster:
        """Look up the hosts that this engine can use.

        Raises:
            EngineError: If the cluster cannot be reached.
        """

    @abstractmethod
    def prepare(
        self, program: Program | None, plan: Plan, cluster: Cluster, options: Options
    ) -> Launch:
        """Decide what to start. Pure: nothing is started, reserved or written.

        Args:
            program: What will run; None while it is still being converted. The launch then
                holds for a program with ``launch="reparto"``.
            plan: How many workers, where, with how many threads.
            cluster: The hosts that the plan places workers on.
            options: How workers run the program.
        """

    @abstractmethod
    def start(self, launch: Launch) -> Run:
        """Start the workers of a launch: they import what they need and stand by.

        What they shall run may still be unknown then; `Run.assign` tells them.

        Raises:
            EngineError: If a worker cannot be started; none is left behind.
        """

    def close(self) -> None:  # noqa: B027  (most engines hold nothing)
        """Let go of the cluster, after the last run; may be called at any time."""


class Run(ABC):
    """Workers that were started. Owns their processes and their scratch folders.

    Call order: ``assign`` once, ``poll`` until ``result`` is there; ``stop`` at any time. Leaving
    the ``with`` block leaves no process behind.
    """

    #: How it ended; None as long as any worker runs.
    result: RunResult | None = None
    #: Whether worker 0 is one of those that this command looks after itself.
    has_main: bool = True

    @abstractmethod
    def assign(self, assignment: Assignment) -> None:
        """Tell workers that stand by what to run."""

    @abstractmethod
    def poll(self, timeout_s: float) -> list[Event]:
        """Wait up to that long for something to happen, and return what did.

        A failure makes the run end by itself: go on polling, ``result`` tells which was the
        first.
        """

    @abstractmethod
    def stop(self, *, now: bool = False) -> None:
        """Ask the workers to end. Go on polling: ``result`` is there within three seconds.

        Workers that train end after a step that they agree on, and get the time to save.

        Args:
            now: Leave the script no time to close what it has open.
        """

    @abstractmethod
    def logs(self, rank: int) -> str:
        """Return what a worker wrote that is not shown: the end of it, empty for worker 0."""

    def wait(self) -> RunResult:
        """Poll to the end, ignoring the events."""
        while self.result is None:
            self.poll(1.0)
        return self.result

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.result is None:
            self.stop()
            self.wait()
