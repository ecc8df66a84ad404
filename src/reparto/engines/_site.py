"""Site: the workers of one host of a cluster, and the files that they need there.

Runs on the host, in a process that dies with the driver, and so do the workers. The host need not
have any of the user's files. What it lacks lies in a *mirror*, where ``path`` is at
``mirror + path``; links lead from there to what the host has, so relative paths keep working:

    driver                       a host that has /home/u/proj, but neither data nor train.py
    /home/u/proj/   (cwd)        mirror/home/u/proj/            the workers' cwd
    ├── train.py                 ├── train.py                   travelled with the call
    ├── data/x.csv               ├── data/x.csv                 travelled: --ship data
    └── notes.txt                └── notes.txt ─► /home/u/proj/notes.txt
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
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reparto.engines._base import WorkerLaunch
from reparto.engines._process import WorkerProcess
from reparto.engines._scratch import Scratch
from reparto.engines._travel import Item, unpack
from reparto.engines._worker import Stream
from reparto.measure import files_written_since
from reparto.spec import Assignment, to_json

READ_BYTES = 1 << 18
MAX_BATCH_BYTES = 4 << 20
MAX_LINKS = 1000  # of a folder above the working directory
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
        self._mirror = str(self._scratch.root / "mirror")
        self._cwd = ""
        self._script_folder = ""
        self._began_s = 0.0
        self._server: socket.socket | None = None
        self._selector = selectors.DefaultSelector()
        self._workers: dict[int, WorkerProcess] = {}
        # The kernel kills a worker when the *thread* that started it ends: this one stays.
        self._starter = ThreadPoolExecutor(1, "reparto-starter", _let_signals_through)

    # ---------------------------------------------------------------------- before the run

    def look(self, visit: Visit) -> Facts:
        """Find out what is here, and where workers will start."""
        own = os.path.exists(visit.token)
        lacking = () if own else tuple(item for item in visit.items if not item.is_here())
        self._cwd = visit.cwd
        if lacking or not os.path.isdir(visit.cwd):
            self._unfold(visit.cwd)
            self._cwd = self._mirror + visit.cwd
        return Facts(
            python=sys.executable,
            time_s=time.time(),
            missing=tuple(name for name in _NEEDED if importlib.util.find_spec(name) is None),
            torch=_version("torch"),
            lacking=lacking,
            mirror="" if own else self._mirror,
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
        path = [self._sources, *own.get("PYTHONPATH", "").split(os.pathsep)]
        path += [each for each in travelled.get("PYTHONPATH", "").split(os.pathsep) if each]
        own["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, path)))
        return {**travelled, **own} if not travelled else {**own, **_without_path(travelled)}

    # ------------------------------------------------------------------------------- files

    def missing(self, paths: Sequence[str]) -> tuple[str, ...]:
        """Which of some paths of the driver this host has not."""
        return tuple(path for path in paths if not os.path.exists(path))

    def take(self, chunk: bytes, is_first: bool) -> None:
        """Take a part of an archive of items."""
        with self._parcel.open("wb" if is_first else "ab") as file:
            file.write(chunk)

    def open_parcel(self, items: Sequence[Item]) -> None:
        """Lay out what has come."""
        for folder in dict.fromkeys(os.path.dirname(item.path) for item in items):
            self._unfold(folder)
        for item in items:
            self._unlink(item.path)
        with self._parcel.open("rb") as file:
            unpack(file, self._mirror)
        self._parcel.unlink()

    @property
    def _parcel(self) -> Path:
        return self._scratch.root / "parcel.tar"

    def assign(self, assignment: Assignment) -> None:
        """Write down what the workers run, as it lies on this host, and let them go."""
        program, options = assignment.program, assignment.options
        for file in program.files:
            self._lay_out(file.path, file.original)
        program = replace(
            program,
            script=self._at(program.script),
            args=tuple(self._argument(arg) for arg in program.args),
            files=tuple(replace(file, path=self._at(file.path)) for file in program.files),
        )
        if options.record and not os.path.isdir(os.path.dirname(options.record)):
            options = replace(options, record=self._mirror + options.record)
        self._script_folder = os.path.dirname(assignment.program.script)
        self._began_s = time.time()
        here = replace(assignment, program=program, options=options)
        self._scratch.write_assignment(to_json(here))
        for worker in self._workers.values():
            worker.go()

    def _lay_out(self, path: str, text: str) -> None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if Path(path).read_text(encoding="utf-8") == text:
                return
        self._unfold(os.path.dirname(path))
        self._unlink(path)
        Path(self._mirror + path).write_text(text, encoding="utf-8")

    def _unfold(self, folder: str) -> None:
        """Make a folder of the mirror real, with links to what this host has in it."""
        for level in (*reversed(Path(folder).parents), Path(folder)):
            place = f"{self._mirror}{level}"
            if os.path.islink(place):
                os.unlink(place)
            if os.path.isdir(place):
                continue
            os.makedirs(place)
            try:
                names = os.listdir(level)
            except OSError:
                continue
            if len(names) <= MAX_LINKS or str(level) == folder:
                for name in names:
                    if not self._mirror.startswith(str(level / name)):
                        os.symlink(level / name, os.path.join(place, name))

    def _unlink(self, path: str) -> None:
        if os.path.islink(self._mirror + path):
            os.unlink(self._mirror + path)

    def _at(self, path: str) -> str:
        """Where a path of the driver lies on this host; itself if it is nowhere."""
        moved = self._mirror + path
        if os.path.lexists(moved) and not os.path.islink(moved):
            return moved
        if os.path.exists(path):
            return path
        folder = os.path.dirname(path)  # not there yet: it belongs where its folder is
        gone = not os.path.isdir(folder) and os.path.isdir(self._mirror + folder)
        return moved if gone else path

    def _argument(self, arg: str) -> str:
        option, equals, value = arg.partition("=") if arg.startswith("-") else ("", "", arg)
        return f"{option}{equals}{self._at(value)}" if os.path.isabs(value) else arg

    # ------------------------------------------------------------------------ while it runs

    def poll(self, timeout_s: float) -> News:
        """Wait up to that long for something to happen, and return what did."""
        told = self._read(0.0 if self._any_has_died() else timeout_s)
        ended = []
        for rank, worker in self._workers.items():
            if worker.status is None and worker.has_died():
                told += self._drain(worker)
                worker.reap(sweep=True)
                ended.append((rank, worker.status or 0, self._log(rank)))
        return News(told=tuple(told), ended=tuple(ended))

    def signal(self, rank: int, number: int) -> None:
        """Send a signal to a worker."""
        self._workers[rank].signal(signal.Signals(number))

    def _any_has_died(self) -> bool:
        return any(each.status is None and each.has_died() for each in self._workers.values())

    def _read(self, timeout_s: float) -> list[tuple[int, Stream, bytes]]:
        told = []
        until, size = time.monotonic() + timeout_s, 0
        while not told and not self._any_has_died():
            ready = self._selector.select(min(0.05, max(0.0, until - time.monotonic())))
            for key, _ in ready:
                if data := self._read_pipe(key.fileobj):
                    told.append((*key.data, data))
                    size += len(data)
            if time.monotonic() >= until or size >= MAX_BATCH_BYTES:
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

    def outputs(self) -> tuple[tuple[str, str, int, int], ...]:
        """The files that worker 0 wrote.

        Returns:
            For each its path on the driver, its path here, size, and time in nanoseconds.
        """
        folder = self._script_folder
        folders = dict.fromkeys((self._cwd, self._mirror, folder, self._cwd[len(self._mirror) :]))
        there = [Path(each) for each in folders if os.path.isdir(each)]
        found = []
        for path in files_written_since(self._began_s, [self._scratch.root / "none", *there]):
            with contextlib.suppress(OSError):
                entry = os.stat(path)
                home = path.removeprefix(os.path.realpath(self._mirror))
                found.append((home, path, entry.st_size, entry.st_mtime_ns))
        return tuple(found)

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


def _let_signals_through() -> None:
    # Ray blocks SIGINT in its processes; ours shall be able to end by it, as in a terminal.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM))


def _without_path(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name != "PYTHONPATH"}


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
