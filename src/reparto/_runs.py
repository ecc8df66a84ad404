"""Runs of this user on this machine: each has a file that is locked as long as it lives."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from reparto.spec import Job


@dataclass(frozen=True, kw_only=True)
class Running:
    """A run that is under way.

    Attributes:
        pid: Of the command that looks after it.
        script: As it was given.
        args: The script's own arguments.
        cwd: Where it was started.
        began_s: When, in seconds since the epoch.
    """

    pid: int
    script: str
    args: tuple[str, ...]
    cwd: str
    began_s: float


@contextlib.contextmanager
def listed(job: Job) -> Iterator[None]:
    """Be found by `running` while inside."""
    here = Running(
        pid=os.getpid(), script=job.script, args=job.args, cwd=os.getcwd(), began_s=time.time()
    )
    try:
        path, file = _locked(here.pid)
    except OSError:  # no place to be found at: train all the same
        yield
        return
    with file:
        file.write(json.dumps(asdict(here)))
        file.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # others run, too
                path.parent.rmdir()


def _locked(pid: int) -> tuple[Path, IO[str]]:
    """The file of a run, locked; until it is, others may take it, or its folder, for left over."""
    path = Path(f"{pid}.json")
    for _ in range(100):
        try:
            path = _folder() / path.name
            file = path.open("w")
            fcntl.flock(file, fcntl.LOCK_EX)  # whoever looks holds it for a moment only
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return path, file
            file.close()
        except FileNotFoundError:  # taken away just now
            continue
    raise FileNotFoundError(path)


def running() -> list[Running]:
    """The runs of this user on this machine, the oldest first; forgets those that died."""
    found = []
    for path in _folder().glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError), path.open() as file:
            if _is_locked(file.fileno()):
                fields = json.loads(file.read())
                found.append(Running(**{**fields, "args": tuple(fields["args"])}))
            else:
                path.unlink()
    return sorted(found, key=lambda one: one.began_s)


def is_running(pid: int) -> bool:
    """Whether that run is still under way."""
    return any(one.pid == pid for one in running())


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _folder() -> Path:
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    folder = Path(base, f"reparto-runs-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to another user")
    return folder
