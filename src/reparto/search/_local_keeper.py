"""Keeper: a process that has imported what workers need, and becomes one whenever it is asked to.

    crew ──work, limits──► keeper: imports, once; computes nothing, so that it can fork
         ──begin 3───────►   │ fork ──► worker 3 ◄──tasks, answers──► crew
                             │ looks at its memory, 25 times a second; ends it if it is too much
         ◄─ended 3, its last words──  reaps it, with all that it has left behind
         ──(end of file)─►  ends everything

The crew may be busy; the keeper never is. What workers leave behind becomes the keeper's child, by
`PR_SET_CHILD_SUBREAPER`, wherever it has hidden.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import pickle
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reparto.search._doing import told_of
from reparto.search._local_memory import Gauge
from reparto.search._local_worker import MARK, become_worker
from reparto.search._work import Work

LOOK_S = 0.04
#: Of what a worker prints, so much is kept.
LAST_BYTES = 8192
#: A worker that is let go of has so long to end.
GRACE_S = 5.0
MESSAGE_BYTES = 1 << 16
_PR_SET_CHILD_SUBREAPER = 36
#: Imported by others only if it is there, slow, and needed by no worker that does not ask for it.
_UNWANTED = ("pandas", "pyarrow")


@dataclass(frozen=True)
class Prepare:
    """Where modules are found, and those that can be imported before the work is known."""

    path: tuple[str, ...]
    modules: tuple[str, ...]


@dataclass(frozen=True)
class Begin:
    """What a keeper needs to begin; it comes with the file of the pickled work."""

    threads: int
    memory_bytes: int | None


@dataclass(frozen=True)
class Start:
    """Start a worker; it comes with the worker's end of its line."""

    worker: int


@dataclass(frozen=True)
class LetGo:
    """A worker was asked to end; end it if it does not."""

    worker: int


@dataclass(frozen=True)
class End:
    """End a worker, whatever it does."""

    worker: int


@dataclass(frozen=True)
class Ended:
    """A worker's process is no more.

    Attributes:
        worker: Which one.
        status: As of `os.waitstatus_to_exitcode`.
        said: What it printed last.
        peak_bytes: The most memory of its own during its last task.
        too_much: Whether it was ended since it took too much.
    """

    worker: int
    status: int
    said: str = ""
    peak_bytes: int = 0
    too_much: bool = False


@dataclass(frozen=True)
class Unborn:
    """No worker can be made."""

    worker: int
    failure: str
    traceback: str


@dataclass
class _Child:
    """A worker, as its keeper knows it."""

    pid: int
    output: int
    gauge: Gauge
    last: bytes = b""
    too_much_bytes: int = 0  # what it had, beyond the limit, when it was ended for that
    end_at: float | None = None


class Keeper:
    """Forks, watches and reaps.

    Args:
        line: To the crew.
    """

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._work: Work | None = None
        self._why = ("", "")
        self._children: dict[int, _Child] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._selector.register(self._woken, selectors.EVENT_READ)

    def run(self) -> None:
        """Do what the crew asks until it is gone; end everything then."""
        try:
            while self._turn():
                self._look()
        except (BrokenPipeError, ConnectionResetError):
            return  # the crew is gone
        finally:
            self._end_all()

    def _turn(self) -> bool:
        patience = LOOK_S if self._children else None
        goes_on = True
        for key, _ in self._selector.select(patience):
            if key.fileobj is self._line:
                goes_on = self._hear()
            elif key.fd == self._woken:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._reap()
            else:
                self._listen(self._children[key.data])
        return goes_on

    def _hear(self) -> bool:
        data, files, _, _ = socket.recv_fds(self._line, MESSAGE_BYTES, 1)
        if not data:
            return False
        asked = pickle.loads(data)
        if isinstance(asked, Prepare):
            _prepare(asked)
        elif isinstance(asked, Begin):
            self._begin(asked, files[0])
        elif isinstance(asked, Start):
            with socket.socket(fileno=files[0]) as line:
                self._start(asked.worker, line)
        elif asked.worker in self._children:
            child = self._children[asked.worker]
            if isinstance(asked, LetGo):
                child.end_at = time.monotonic() + GRACE_S
            else:
                _kill(child.pid)
        return True

    def _begin(self, asked: Begin, file: int) -> None:
        self._limits = asked
        try:
            with os.fdopen(file, "rb") as packed, without(_UNWANTED):
                work = pickle.load(packed)
                work.load()
            self._work = work
        except BaseException as error:  # told to whoever wants a worker
            self._why = told_of(error)
        gc.collect()
        gc.freeze()  # a worker that collects garbage shall not touch what it shares with us

    def _start(self, number: int, line: socket.socket) -> None:
        if self._work is None:
            self._tell(Unborn(number, *self._why))
            return
        output, output_of_worker = os.pipe()
        gauge = Gauge()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(output)
            os.close(output_of_worker)
            self._tell(Unborn(number, *told_of(error)))
            return
        if pid == 0:
            become_worker(
                number,
                self._work,
                line,
                output_of_worker,
                gauge,
                threads=self._limits.threads,
                memory_bytes=self._limits.memory_bytes,
            )
        os.close(output_of_worker)
        os.set_blocking(output, False)
        gauge.watch(pid)
        self._children[number] = _Child(pid, output, gauge)
        self._selector.register(output, selectors.EVENT_READ, number)

    def _listen(self, child: _Child) -> None:
        """Keep the last that it prints; one that prints without end is not waited for."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(16):
                data = os.read(child.output, 1 << 16)
                if not data:
                    with contextlib.suppress(KeyError):
                        self._selector.unregister(child.output)
                    return
                new = (child.last + data).rpartition(MARK)[2]
                child.last = new[-LAST_BYTES:]

    def _look(self) -> None:
        """End workers that take too much memory, or do not end by themselves."""
        most = self._limits.memory_bytes if self._children else None
        for child in self._children.values():
            own = child.gauge.look()
            if most is not None and own > most:
                child.too_much_bytes = child.too_much_bytes or own
                _kill(child.pid)
            elif child.end_at is not None and time.monotonic() > child.end_at:
                _kill(child.pid)

    def _reap(self) -> None:
        for number, child in list(self._children.items()):
            if not has_ended(child.pid):
                continue
            _kill(child.pid)  # what it has left in its group; its number is still taken
            _, status = os.waitpid(child.pid, 0)
            self._listen(child)
            del self._children[number]
            with contextlib.suppress(KeyError):
                self._selector.unregister(child.output)
            os.close(child.output)
            self._tell(
                Ended(
                    number,
                    os.waitstatus_to_exitcode(status),
                    child.last.decode(errors="replace"),
                    max(child.gauge.seen(), child.too_much_bytes),
                    child.too_much_bytes > 0,
                )
            )
            child.gauge.close()
        self._sweep()

    def _sweep(self) -> None:
        """End what workers have left behind: it became ours when they ended."""
        known = {child.pid for child in self._children.values()}
        for pid in set(children_of(os.getpid())) - known:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _end_all(self) -> None:
        for child in self._children.values():
            _kill(child.pid)
        for child in self._children.values():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
        self._children = {}
        while children_of(os.getpid()):  # theirs, and those of theirs
            self._sweep()

    def _tell(self, message: Any) -> None:
        self._line.sendall(pickle.dumps(message))


def _prepare(asked: Prepare) -> None:
    sys.path[:] = asked.path
    with without(_UNWANTED):
        for name in asked.modules:
            with contextlib.suppress(ImportError):  # whoever needs it will say so
                importlib.import_module(name)


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not reaped, so its number stays taken."""
    flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, pid, flags) is not None


def children_of(pid: int) -> list[int]:
    """Processes that a thread has started, or been left with, and that still are."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:  # not every kernel tells
        return []


@contextlib.contextmanager
def without(names: tuple[str, ...]) -> Iterator[None]:
    """Let imports of others find that these modules are not there."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _kill(pid: int) -> None:
    """End a worker, with its group; it may not have one yet."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Keep workers for the crew at the other end of the socket that was given."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Keeper(socket.socket(fileno=int(sys.argv[1]))).run()
