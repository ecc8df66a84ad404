"""A worker: one process with a rank, that runs the user's script.

Engines start ``python -m reparto.runtime.worker``, often before it is known what it shall run,
so that importing torch takes no time of its own:

    engine  ──start──────────── converts the script ──assignment.json, "go"── … ── EOF: all die
    worker     └─ import torch ─────────────────── waits ──┴─ join ─ script ─ leave ─ done

It reads its environment:

    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT   as usual
    REPARTO_ASSIGNMENT   path of a JSON `spec.Assignment`
    REPARTO_CONTROL      fd: a line comes when the assignment is there, EOF when the engine is gone
    REPARTO_EVENTS       fd to write events to, see `_events`
    REPARTO_LISTEN_FD    fd of the socket that listens on MASTER_PORT (rank 0)
    REPARTO_SCRATCH      folder of this worker's own
    REPARTO_SINCE_NS     when the run was launched; if not set, the assignment's time is taken
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from reparto.runtime._events import EventWriter
from reparto.runtime._failure import describe
from reparto.runtime._lifeline import die_with_engine
from reparto.runtime._memory import MemoryMeter
from reparto.runtime._program import run_script
from reparto.runtime._usage import usage_told
from reparto.spec import Assignment, StepRecord, from_json

if TYPE_CHECKING:
    from reparto.runtime._world import World

RENDEZVOUS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Where a worker sits, as its environment says."""

    rank: int
    world_size: int
    master: tuple[str, int]
    assignment: str
    scratch: str
    since_ns: int
    control_fd: int | None
    events_fd: int | None
    listen_fd: int | None

    @classmethod
    def from_environment(cls) -> Seat:
        """Read the seat, and take out of the environment what is not the script's business."""
        env = os.environ
        return cls(
            rank=int(env.get("RANK", "0")),
            world_size=int(env.get("WORLD_SIZE", "1")),
            master=(env.get("MASTER_ADDR", "127.0.0.1"), int(env.get("MASTER_PORT", "0"))),
            assignment=env.pop("REPARTO_ASSIGNMENT"),
            scratch=env.get("REPARTO_SCRATCH", ""),
            since_ns=int(env.get("REPARTO_SINCE_NS", "0")),
            control_fd=_take_fd("REPARTO_CONTROL"),
            events_fd=_take_fd("REPARTO_EVENTS"),
            listen_fd=_take_fd("REPARTO_LISTEN_FD"),
        )


def main() -> int:
    """Run the assignment; the exit status is the script's, or 1 if it raised."""
    seat = Seat.from_environment()
    events = EventWriter(seat.events_fd)
    faulthandler.enable()
    _heed_sigint()
    arrived = die_with_engine(seat.control_fd)
    _stay_nice()
    _warm_up()
    arrived.wait()
    with open(seat.assignment, encoding="utf-8") as file:
        assignment = from_json(Assignment, file.read())
    return _Worker(seat, events, assignment).run()


class _Worker:
    def __init__(self, seat: Seat, events: EventWriter, assignment: Assignment) -> None:
        self._seat = seat
        self._events = events
        self._assignment = assignment
        self._step = 0
        self._memory = MemoryMeter(
            on_gpu=assignment.plan.device == "cuda",
            memory_bytes=assignment.options.memory_bytes,
            on_exceeded=self._events.failed,
        )
        events.tells_every_step = assignment.options.losses

    def run(self) -> int:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError):  # replaced by something without it
                stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        try:
            exit_code, summary = self._run_script()
        except BaseException as error:  # the top of a worker: whatever it was, it is told
            program = self._assignment.program
            self._events.failed(
                describe(error, rank=self._seat.rank, step=self._step, program=program)
            )
            return 1
        self._events.done(exit_code, summary)
        return exit_code

    def _run_script(self) -> tuple[int, Mapping[str, Any]]:
        program = self._assignment.program
        if program.launch != "reparto":
            self._step_aside()
            return _run_to_exit_code(self._recorded), {}
        from reparto.runtime._join import Served, end_survey, leave

        if self._assignment.options.memory_bytes is not None:
            # Plain Python has it with its first optimizer, and what fits shall fit there, too.
            import_module("torch._dynamo")
        try:
            world = self._joined()
        except Served as served:
            return 0, served.summary
        if world.accelerator is not None:
            world.accelerator.home.may_ask = program.names_gpu
        world.stopping.on_decided = self._on_stopping
        world.stopping.heed()
        if self._seat.world_size == 1:
            self._forget_rendezvous()
        exit_code = _run_to_exit_code(self._recorded)
        if self._assignment.options.survey is not None and exit_code == 0:
            return _run_to_exit_code(lambda: end_survey(world)), {}
        # After a failed exit the others may not be where leaving together can be waited for.
        if exit_code != 0:
            return exit_code, {}
        rows = world.batch_rows
        memory = self._memory.told(rows.held_bytes if rows is not None else 0)
        return exit_code, {**leave(world), **memory}

    def _joined(self) -> World:
        from reparto.runtime._join import join

        return join(
            rank=self._seat.rank,
            world_size=self._seat.world_size,
            strategy=self._assignment.plan.strategy,
            options=self._assignment.options,
            device=self._device(),
            master=self._seat.master,
            listen_fd=self._seat.listen_fd,
            on_step=self._on_step,
            on_note=self._on_note,
            on_found=self._events.surveyed,
            accelerate=self._assignment.plan.accelerate,
        )

    def _recorded(self) -> None:
        with usage_told(self._events, self._assignment, self._seat.rank):
            self._begin()

    def _begin(self) -> None:
        if self._writes_aside():
            from reparto.runtime._files import Overlay, mute_trackers

            files = self._write_to() or os.path.join(self._seat.scratch, "files")
            if not self._write_to():
                mute_trackers(os.environ, files)
            since_ns = self._seat.since_ns or os.stat(self._seat.assignment).st_mtime_ns
            Overlay(files, since_ns).install()
        self._memory.begin()
        self._events.begin()
        run_script(self._assignment.program)

    def _writes_aside(self) -> bool:
        if self._assignment.options.discard_writes or self._write_to():
            return True
        return self._assignment.program.launch == "reparto" and self._seat.rank > 0

    def _write_to(self) -> str:
        """Where this worker's writes are kept; empty if they are not, or go where they belong."""
        # Workers of a script that distributes itself write each for itself.
        is_told = self._seat.rank == 0 or self._assignment.program.launch != "reparto"
        return self._assignment.options.write_to if is_told else ""

    def _step_aside(self) -> None:
        """Leave rank, port and group to a script that distributes itself."""
        if self._seat.listen_fd is not None:
            os.close(self._seat.listen_fd)
        if self._assignment.program.launch == "plain":
            self._forget_rendezvous()

    def _forget_rendezvous(self) -> None:
        # Scripts ask `"RANK" in os.environ`; alone, they shall see what plain Python shows.
        for name in RENDEZVOUS:
            os.environ.pop(name, None)

    def _device(self) -> str:
        if self._assignment.plan.device == "cuda":
            import torch

            if torch.cuda.is_available():
                return "cuda"
            self._on_note("planned for GPUs, but torch sees none: computing on the CPU")
        return "cpu"

    def _on_step(self, record: StepRecord) -> None:
        self._step = record.step
        options = self._assignment.options
        if self._seat.rank == 0 or options.losses or options.paces:
            self._events.step(record)

    def _on_stopping(self, step: int, in_s: float) -> None:
        self._events.stopping(step, in_s)

    def _on_note(self, text: str) -> None:
        if self._seat.rank == 0:
            self._events.note(text)


def _run_to_exit_code(script: Any) -> int:
    """Run the script; turn `SystemExit` into the exit status that Python would give it."""
    try:
        script()
    except SystemExit as leaving:
        if leaving.code is None:
            return 0
        if isinstance(leaving.code, int):
            return leaving.code & 0xFF
        print(leaving.code, file=sys.stderr)
        return 1
    return 0


def _heed_sigint() -> None:
    """Be there for SIGINT, by which engines ask workers to end.

    Ray blocks it in what it starts, and shells let background jobs ignore it.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))


def _warm_up() -> None:
    """Import what every assignment needs, while the engine is still busy."""
    with contextlib.suppress(ImportError):
        for name in ("torch", "pydantic", "reparto.runtime._world"):
            import_module(name)


def _stay_nice() -> None:
    """Be as nice as whoever started us, also where the kernel counts that by session."""
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    if niceness > 0:
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as autogroup:
            autogroup.write(str(niceness))


def _take_fd(name: str) -> int | None:
    value = os.environ.pop(name, None)
    if value is None:
        return None
    os.set_inheritable(int(value), False)  # for what the script may start
    return int(value)


if __name__ == "__main__":
    sys.exit(main())
