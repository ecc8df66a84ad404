"""Memory of one worker: what it has of its own, the most it had, and what it cannot go beyond.

What a process has of its own are its anonymous pages: a shared table and the libraries' files
do not count. A keeper looks often; what was there between two looks is known to the kernel,
which keeps the highest mark of all pages:

    own at the mark  =  mark − shared at the mark  ≥  mark − shared at the end
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
_TASK, _BASE, _PEAK, _READY = range(4)
#: Beyond its limit a worker may reserve so much more before it is refused, by part and bytes:
#: what grows is ended by the keeper, what asks for far too much at once is told so.
RESERVE_SHARE, RESERVE_BYTES = 1.25, 256 << 20


def own_bytes(pid: int | str = "self") -> int:
    """Memory of a process that is not shared; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
    except OSError:
        return 0
    return max(0, int(fields[1]) - int(fields[2])) * _PAGE


class Gauge:
    """A page that a worker and its keeper share, made before the one becomes the other.

    `look` and `seen` are called by the keeper, the others by the worker.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _PAGE)
        self._cells = memoryview(self._page).cast("q")
        self._shared = 0

    def ready(self) -> None:
        """All that the worker has now is what it begins with."""
        self._cells[_READY] = own_bytes()

    def settle(self) -> None:
        """Give back to the system what is not used any more."""
        self._cells[_BASE] = 0
        gc.collect()
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)

    def begin(self) -> None:
        """A task begins."""
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the mark is where we are
        _, self._shared = _mark_and_shared()
        self._cells[_TASK] += 1
        self._cells[_PEAK] = 0
        self._cells[_BASE] = max(1, own_bytes())

    def peak(self) -> int:
        """The most that the worker had since `begin`, beyond what it had then."""
        mark, shared = _mark_and_shared()
        by_mark = mark - max(shared, self._shared) - self._cells[_BASE] if mark else 0
        self._cells[_PEAK] = max(self._cells[_PEAK], by_mark, own_bytes() - self._cells[_BASE])
        return int(self._cells[_PEAK])

    def look(self, pid: int) -> int:
        """What the worker has beyond what it began with; 0 if it has no task."""
        task, base = self._cells[_TASK], self._cells[_BASE]
        if not base:
            return 0
        own = own_bytes(pid)
        if task == self._cells[_TASK]:
            self._cells[_PEAK] = max(self._cells[_PEAK], own - base)
        return int(own - self._cells[_READY])

    def seen(self) -> int:
        """The most that is known to the keeper."""
        return int(self._cells[_PEAK])

    def close(self) -> None:
        """Let go of the page."""
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


def _mark_and_shared() -> tuple[int, int]:
    """The highest mark of all pages, and the shared ones now."""
    mark = shared = 0
    for line in Path("/proc/self/status").read_bytes().splitlines():
        if line.startswith(b"VmHWM:"):
            mark = int(line.split()[1]) * 1024
        elif line.startswith((b"RssFile:", b"RssShmem:")):
            shared += int(line.split()[1]) * 1024
    return mark, shared
