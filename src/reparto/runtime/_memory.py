"""The most memory that a worker has while the script runs, and a guard against too much of it.

    import torch ─ join ─┬─ script ────────────────────────────────┬─ leave
                         idle            ▲ peak                     told
                         └─ guard: every 5 ms, is it too much? then say so, and end

What counts is memory that the script needs: on a CPU resident pages, on a GPU what its tensors
take, and what the libraries take besides. Torch reserves more of a GPU, as long as there is more
(on an H200 a convolutional network had a third in gaps), and gives that back before it fails.

The kernel ends a process that takes more memory than there is by SIGKILL, and maybe another one
than that. So a guarded worker ends itself before. Three lines of defence: a thread sees what
creeps up page by page; an allocation that is far too large is refused by a limit of the process
(``RLIMIT_DATA``), which torch raises as an error; and if the kernel should be faster than both,
it finds this worker the first to be ended, and the engine tells of that like of any failure.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from reparto.measure import memory_left_bytes
from reparto.spec import Failure

EVERY_S = 0.005
#: Libraries ask for memory that they do not use, such as arenas and stacks of threads: so many
#: times what is left may be asked for.
UNUSED = 2.0
#: The guard ends a worker when so much of the limit is used.
GUARD_SHARE = 0.99
#: The name of the failure when it does.
ERROR = "OutOfMemoryError"


class MemoryMeter:
    """Tells the most memory that this process had since the script began.

    Call order: ``begin``, then ``told`` when the script has ended.

    Args:
        on_gpu: Whether the script is expected to compute on a GPU.
        memory_bytes: As of `Options`.
        on_exceeded: Is told of the failure, from a thread, just before the process ends.
    """

    def __init__(
        self, *, on_gpu: bool, memory_bytes: int | None, on_exceeded: Callable[[Failure], None]
    ) -> None:
        self._on_gpu, self._memory_bytes = on_gpu, memory_bytes
        self._on_exceeded = on_exceeded
        self._process = Resident()
        self._idle = self._free = self._gpu_free = self._gpu_idle = 0
        self._over = threading.Event()

    def begin(self) -> None:
        """The script is about to begin."""
        asked = self._memory_bytes
        if asked is not None and self._on_gpu:
            self._begin_gpu(asked)
        self._process.begin()
        self._idle = self._process.resident_bytes()
        if asked is None:
            return
        left = memory_left_bytes()
        self._free = left + self._idle if left else 0
        wanted = 0 if self._on_gpu else asked  # that is the GPU's
        limits = [one for one in (wanted, self._free) if one]
        if limits:
            self._guard(int(min(limits) * GUARD_SHARE))

    def told(self, held_bytes: int = 0) -> dict[str, Any]:
        """What a worker tells at its end.

        Args:
            held_bytes: What its loader processes held for it in the meantime.
        """
        self._over.set()
        if (gpu := self._gpu()) is not None:
            return gpu
        return {
            "peak_bytes": self._process.peak_bytes() + held_bytes,
            "idle_bytes": self._idle,
            "free_bytes": self._free,
            "memory_device": "cpu",
        }

    def _begin_gpu(self, asked: int) -> None:
        import torch

        if not torch.cuda.is_available():
            self._on_gpu = False
            return
        self._gpu_free, total = torch.cuda.mem_get_info()
        self._gpu_idle = total - self._gpu_free
        limit = min(asked or self._gpu_free, self._gpu_free)
        # Torch then raises where it would otherwise take what others need.
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))

    def _gpu(self) -> dict[str, Any] | None:
        """The same of a GPU, if the script has computed on one."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return None
        peak = torch.cuda.max_memory_allocated()
        if not peak:
            return None
        if self._gpu_free:  # kernels and libraries take memory that no allocator knows of
            free, total = torch.cuda.mem_get_info()
            besides = total - free - torch.cuda.memory_reserved() - self._gpu_idle
            peak += max(0, besides)
        return {
            "peak_bytes": peak,
            "idle_bytes": 0,
            "free_bytes": self._gpu_free,
            "memory_device": torch.cuda.get_device_name(),
        }

    def _guard(self, limit: int) -> None:
        if not self._on_gpu and (data := self._process.number("VmData")):
            ceiling = data + int(UNUSED * max(0, limit - self._idle))
            with contextlib.suppress(OSError, ValueError):  # a lower one is set already
                resource.setrlimit(resource.RLIMIT_DATA, (ceiling, ceiling))
        with contextlib.suppress(OSError):  # not Linux
            self._process.volunteer()
        watch = threading.Thread(
            target=self._watch, args=(limit,), name="reparto-memory", daemon=True
        )
        watch.start()

    def _watch(self, limit: int) -> None:
        while not self._over.wait(EVERY_S):
            if (found := self._process.resident_bytes()) > limit:
                self._on_exceeded(_exceeded(found, limit))
                # Not an exception: the main thread may be in the middle of taking more.
                os._exit(1)


def _exceeded(found: int, limit: int) -> Failure:
    return Failure(
        rank=0,
        host=socket.gethostname(),
        error=ERROR,
        message=f"{found >> 20} MiB are resident, more than the {limit >> 20} MiB allowed",
        time_s=time.time(),
    )


class Resident:
    """What the system says of this process.

    Files are opened once: the script's own view of files (`_files`) does not get in the way.
    """

    def __init__(self) -> None:
        self._statm, self._status, self._clear = (
            _opened("statm", os.O_RDONLY),
            _opened("status", os.O_RDONLY),
            _opened("clear_refs", os.O_WRONLY),
        )

    def begin(self) -> None:
        """Let the peak begin here; where that cannot be, it is that since the start."""
        if self._clear is not None:
            with contextlib.suppress(OSError):
                os.write(self._clear, b"5")

    def volunteer(self) -> None:
        """Be the first that the kernel ends when memory runs out."""
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
        try:
            os.write(fd, b"1000")
        finally:
            os.close(fd)

    def resident_bytes(self) -> int:
        """Memory that is in use now; the peak where only that is known."""
        if self._statm is None:
            return _max_resident_bytes()
        return int(os.pread(self._statm, 256, 0).split()[1]) * resource.getpagesize()

    def peak_bytes(self) -> int:
        """The most that it was."""
        return self.number("VmHWM") or _max_resident_bytes()

    def number(self, name: str) -> int:
        """A size in the status of the process; 0 if unknown."""
        if self._status is None:
            return 0
        text = os.pread(self._status, 1 << 14, 0).decode(errors="replace")
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        return int(found[1]) << 10 if found is not None else 0


def _opened(name: str, flags: int) -> int | None:
    try:
        return os.open(f"/proc/self/{name}", flags)
    except OSError:  # not Linux
        return None


def _max_resident_bytes() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
