"""Memory of one worker: what it has of its own, the most it had, and what it cannot go beyond.

What a process has of its own are its anonymous pages: a shared table and the libraries' files
do not count. A keeper looks often; what was there between two looks is known to the kernel,
which keeps the highest mark of all pages:

    own at the mark  =  mark − shared at the mark  ≥  mark − the most that was shared
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import mmap
import os
import resource
from pathlib import Path

_PAGE = mmap.PAGESIZE
_TASK, _BASE, _PEAK, _READY, _SHARED = range(5)
#: Beyond its limit a worker may reserve so much more before it is refused, by part and bytes:
#: what grows is ended by the keeper, what asks for far too much at once is told so.
RESERVE_SHARE, RESERVE_BYTES = 1.25, 256 << 20


def own_and_shared(statm: int | None = None) -> tuple[int, int]:
    """Memory of a process that is its own, and that is shared; 0 if it is gone.

    Args:
        statm: Its file of that name, open; None for this process.
    """
    try:
        if statm is None:
            fields = Path("/proc/self/statm").read_bytes().split()
        else:
            fields = os.pread(statm, 256, 0).split()
    except OSError:
        return 0, 0
    shared = int(fields[2])
    return max(0, int(fields[1]) - shared) * _PAGE, shared * _PAGE


class Gauge:
    """A page that a worker and its keeper share, made before the one becomes the other.

    `watch`, `look` and `seen` are called by the keeper, the others by the worker.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _PAGE)
        self._cells = memoryview(self._page).cast("q")
        self._has_mark = False
        self._statm = -1

    def ready(self) -> None:
        """All that the worker has now is what it begins with."""
        self._cells[_READY], _ = own_and_shared()

    def settle(self) -> None:
        """Give back to the system what is not used any more."""
        self._cells[_BASE] = 0
        gc.collect()
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)

    def begin(self) -> None:
        """A task begins."""
        self._has_mark = False
        with contextlib.suppress(OSError):  # not every container may
            Path("/proc/self/clear_refs").write_text("5")  # the mark is where we are
            self._has_mark = True
        own, shared = own_and_shared()
        self._cells[_TASK] += 1
        self._cells[_PEAK], self._cells[_SHARED], self._cells[_BASE] = 0, shared, max(1, own)

    def peak(self) -> int:
        """The most that the worker had since `begin`, beyond what it had then."""
        own, shared = own_and_shared()
        if self._has_mark:
            own = max(own, _mark() - max(shared, self._cells[_SHARED]))
        self._note(own)
        return self.seen()

    def watch(self, pid: int) -> None:
        """The worker is this process."""
        self._statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY)

    def look(self) -> int:
        """What the worker has beyond what it began with; 0 if it has no task."""
        task = self._cells[_TASK]
        if not self._cells[_BASE]:
            return 0
        own, shared = own_and_shared(self._statm)
        if task == self._cells[_TASK]:
            self._note(own)
            self._cells[_SHARED] = max(self._cells[_SHARED], shared)
        return own - int(self._cells[_READY])

    def _note(self, own: int) -> None:
        self._cells[_PEAK] = max(self._cells[_PEAK], own - self._cells[_BASE])

    def seen(self) -> int:
        """The most that is known to the keeper."""
        return int(self._cells[_PEAK])

    def close(self) -> None:
        """Let go of the page."""
        if self._statm >= 0:
            os.close(self._statm)
        self._cells.release()
        self._page.close()


def limit(memory_bytes: int) -> None:
    """Refuse this process what goes far beyond so much more than it has."""
    reserved = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            reserved = int(line.split()[1]) * 1024
    most = reserved + int(memory_bytes * RESERVE_SHARE) + RESERVE_BYTES
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def sacrifice() -> None:
    """Let the system end this process rather than others when memory runs out."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{os.getpid()}/oom_score_adj").write_text("900")


def _mark() -> int:
    """The most memory that this process had, its own and shared, since that was reset."""
    for line in Path("/proc/self/status").read_bytes().splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
