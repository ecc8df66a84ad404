"""Site: the workers of one host of a cluster, and the files that they need there.

Runs on the host, in a process that dies with the driver, and so do the workers. The host need not
have any of the user's files, see `_mirror`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import selectors
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reparto.engines._base import WorkerLaunch
from reparto.engines._mirror import Mirror
from reparto.engines._process import WorkerProcess
from reparto.engines._scratch import Scratch
from reparto.engines._travel import Item
from reparto.engines._worker import Stream
from reparto.measure import files_written_since
from reparto.spec import Assignment, to_json

TICK_S = 0.05
READ_BYTES = 1 << 18
LOG_BYTES = 1 << 20

#: What a worker cannot do without, and may not be there although Ray is.
_NEEDED = ("torch", "numpy", "pydantic")


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What a driver tells a host about itself.

    Attributes:
        cwd: The folder in which the script shall start.
        token: A path that exists on the driver only: whoever sees it shares its disk.
        items: What shall be on every host.
    """

    cwd: str
    token: str
    items: tuple[Item, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a host tells about itself.

    Attributes:
        python: Its interpreter.
        time_s: Its clock.
        missing: Modules that it has not.
        torch: The version of torch.
        lacking: Items of the visit that it has not.
        mirror: Folder of this host under which the user's paths lie; empty if not needed yet.
    """

    python: str
    time_s: float
    missing: tuple[str, ...]
    torch: str
    lacking: tuple[Item, ...]
    mirror: str


@dataclass(frozen=True, kw_only=True)
class News:
    """What has happened on a host.

    Attributes:
        told: Rank, stream and bytes, in the order in which they came.
        ended: Rank, status and the end of the log.
    """

    told: tuple[tuple[int, Stream, bytes], ...] = ()
    ended: tuple[tuple[int, int, bytes], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Written:
    """A file that worker 0 wrote.

    Attributes:
        home: Where the user expects it, on the driver.
        path: Where it lies on this host.
        size_bytes: Its size.
        time_ns: When it was written.
    """

    home: str
    path: str
    size_bytes: int
    time_ns: int


class Site:
    """Starts workers on this host, and tells what they tell.

    Call order: ``look``, ``listen`` on the host of worker 0, ``start``, ``take`` for what
    travels, ``assign``, ``poll`` until all have ended, ``close``. ``poll`` is called from one
    thread at a time, ``signal`` from any.

    Args:
        sources: Where reparto itself was unpacked on this host; empty if it is installed.
    """

    def __init__(self, sources: str = "") -> None:
        self._sources = sources
        self._scratch = Scratch(0)
        self._mirror = Mirror(str(self._scratch.root / "mirror"))
        self._own = False  # whether this is the driver's own machine
        self._cwd = ""
        self._searched: list[str] = []  # folders of the driver in which outputs may appear
        self._began_s = 0.0
        self._server: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, WorkerProcess] = {}
        self._lock = threading.Lock()  # no signal to a number that was just given back
        # The kernel kills a worker when the *thread* that started it ends: this one stays.
        self._starter = ThreadPoolExecutor(1, "reparto-starter")

    # ---------------------------------------------------------------------- before the run

    def look(self, visit: Visit) -> Facts:
        """Find out what is here, and where workers will start."""
        self._own = own = os.path.exists(visit.token)
        lacking = () if own else tuple(item for item in visit.items if not item.is_here())
        is_mirrored = bool(lacking) or not os.path.isdir(visit.cwd)
        self._cwd = self._mirror.unfold(visit.cwd) if is_mirrored else visit.cwd
        self._searched.append(visit.cwd)
        return Facts(
            python=sys.executable,
            time_s=time.time(),
            missing=tuple(name for name in _NEEDED if importlib.util.find_spec(name) is None),
            torch=_version("torch"),
            lacking=lacking,
            mirror="" if own else self._mirror.root,
        )

    def listen(self, address: str) -> int:
        """Take a port of this host for worker 0, and keep it; return its number."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._server = socket.create_server((address, 0), family=family, backlog=1024)
        except OSError:  # known to others by an address that no interface has
            self._server = socket.create_server(("", 0), family=family, backlog=1024)
        return int(self._server.getsockname()[1])

    def start(
        self, workers: Sequence[WorkerLaunch], env: Mapping[str, str], outer: Mapping[str, str]
    ) -> None:
        """Start workers; they stand by until `assign`.

        Args:
            workers: Those of this host.
            env: What the run adds to the environment of all workers.
            outer: What of the driver's environment travels.
        """
        full_env = {**env, "REPARTO_ASSIGNMENT": str(self._scratch.assignment)}
        self._starter.submit(self._start, workers, full_env, self._outer(outer)).result()
        if self._server is not None:
            self._server.close()

    def _start(
        self, workers: Sequence[WorkerLaunch], env: Mapping[str, str], outer: Mapping[str, str]
    ) -> None:
        for launch in workers:
            self._scratch.of_worker(launch.rank).mkdir()
            here = replace(
                launch,
                command=(sys.executable, *launch.command[1:]),
                env=_with_own_gpu(launch.env),
            )
            listen = self._server if launch.rank == 0 else None
            worker = WorkerProcess(here, self._cwd, env, listen, self._scratch, outer)
            self._workers[launch.rank] = worker
            for stream, pipe in worker.pipes.items():
                self._selector.register(pipe, selectors.EVENT_READ, (launch.rank, stream))

    def _outer(self, travelled: Mapping[str, str]) -> dict[str, str]:
        """The user's environment, on this machine; without what Ray has put into it."""
        own = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("RAY_") and name not in ("OMP_NUM_THREADS", "PYTHONBREAKPOINT")
        }
        paths = (self._sources, travelled.get("PYTHONPATH", ""), own.get("PYTHONPATH", ""))
        path = os.pathsep.join(filter(None, paths))
        return {**own, **travelled, **({"PYTHONPATH": path} if path else {})}

    # ------------------------------------------------------------------------------- files

    def missing(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Which of some paths of the driver this host has not."""
        return tuple(path for path in paths if not os.path.exists(path))

    def take(self, chunk: bytes, is_first: bool) -> None:
        """Take a part of an archive of items."""
        with self._parcel.open("wb" if is_first else "ab") as file:
            file.write(chunk)

    def unpack(self, items: Sequence[Item]) -> None:
        """Lay out what has come."""
        with self._parcel.open("rb") as file:
            self._mirror.unpack(file, items)
        self._parcel.unlink()

    def assign(self, assignment: Assignment) -> None:
        """Write down what the workers run, as it lies on this host, and let them go."""
        self._searched.append(os.path.dirname(assignment.program.script))
        program, options = assignment.program, assignment.options
        if not self._own:
            program = self._mirror.lay_out(program)
        if options.record:
            self._searched.append(options.record)
            if not os.path.isdir(os.path.dirname(options.record)):
                options = replace(options, record=self._mirror.root + options.record)
        self._began_s = time.time()
        here = replace(assignment, program=program, options=options)
        self._scratch.write_assignment(to_json(here))
        for worker in self._workers.values():
            worker.go()

    @property
    def _parcel(self) -> Path:
        return self._scratch.root / "parcel.tar"

    # ------------------------------------------------------------------------ while it runs

    def poll(self, timeout_s: float) -> News:
        """Wait up to that long for something to happen, and return what did."""
        told = self._read(0.0 if self._any_has_died() else timeout_s)
        ended = []
        for rank, worker in self._workers.items():
            if worker.status is None and worker.has_died():
                told += self._drain(worker)
                with self._lock:
                    worker.reap(sweep=True)
                ended.append((rank, worker.status or 0, self._log(rank)))
        return News(told=tuple(told), ended=tuple(ended))

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a worker."""
        with self._lock:
            self._workers[rank].signal(signal.Signals(number))

    def _any_has_died(self) -> bool:
        return any(each.status is None and each.has_died() for each in self._workers.values())

    def _read(self, timeout_s: float) -> list[tuple[int, Stream, bytes]]:
        told: list[tuple[int, Stream, bytes]] = []
        until = time.monotonic() + timeout_s
        while not told and not self._any_has_died():
            remaining = until - time.monotonic()
            for key, _ in self._selector.select(min(TICK_S, max(0.0, remaining))):
                if data := self._read_pipe(key.fileobj):
                    told.append((*key.data, data))
            if remaining <= 0:
                break
        return told

    def _read_pipe(self, pipe: Any) -> bytes:
        data = os.read(pipe.fileno(), READ_BYTES)
        if not data:
            self._selector.unregister(pipe)
            pipe.close()
        return data

    def _drain(self, worker: WorkerProcess) -> list[tuple[int, Stream, bytes]]:
        """Read what is left in the pipes of a dead worker; others may hold them open."""
        told = []
        for stream, pipe in worker.pipes.items():
            while not pipe.closed:
                with selectors.DefaultSelector() as ready:
                    ready.register(pipe, selectors.EVENT_READ)
                    if not ready.select(0):
                        self._selector.unregister(pipe)
                        pipe.close()
                        break
                if data := self._read_pipe(pipe):
                    told.append((worker.rank, stream, data))
        return told

    def _log(self, rank: int) -> bytes:
        with contextlib.suppress(OSError), self._scratch.log(rank).open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_BYTES))
            return file.read()
        return b""

    # ------------------------------------------------------------------------ at the end

    def outputs(self) -> tuple[Written, ...]:
        """List the files that worker 0 wrote."""
        folders = [Path(place) for path in self._searched for place in self._places(path)]
        own = f"{self._scratch.root.resolve()}{os.sep}"
        found: dict[str, Written] = {}
        for path in files_written_since(self._began_s, [self._scratch.root / "none", *folders]):
            home = self._mirror.home(path)
            if not home.startswith(own):
                with contextlib.suppress(OSError):
                    entry = os.stat(path)
                    found[home] = Written(
                        home=home,
                        path=path,
                        size_bytes=entry.st_size,
                        time_ns=entry.st_mtime_ns,
                    )
        return tuple(found.values())

    def _places(self, path: str) -> list[str]:
        places = (self._mirror.root + path, path)
        return [place for place in places if os.path.isdir(place)]

    def read(self, path: str, offset: int, num_bytes: int) -> bytes:
        """Read a part of a file."""
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(num_bytes)

    def close(self) -> None:
        """Leave no process and no file behind."""
        for worker in self._workers.values():
            worker.signal(signal.SIGKILL)
        if self._server is not None:
            self._server.close()
        shutil.rmtree(self._scratch.root, ignore_errors=True)


def _with_own_gpu(env: Mapping[str, str]) -> dict[str, str]:
    """The plan counts a host's GPUs from 0; Ray may have given us others."""
    given = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    planned = env.get("CUDA_VISIBLE_DEVICES", "")
    if not given or not planned.isdigit():
        return dict(env)
    return {**env, "CUDA_VISIBLE_DEVICES": given[int(planned) % len(given)]}


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""
