"""UsageSampler: what this host uses of its CPUs, memory, GPUs and network. No torch.

    CPU, memory   the worker's own control group, where that is limited (a container) or a host
                  of the lab; else the whole machine: a login session has a group, too
    network       the devices of the worker's own network namespace; bridges, tunnels and the like
                  pass on what these carry. Where there are only such (a container), all but lo
    GPU           nvidia-smi, where there is one

Files are opened once, when the sampler is made: reading them again is cheap, and whatever the
script's own view of files becomes later (`runtime._files`) does not get in the way.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

from reparto.measure._control_groups import ControlGroup, control_groups
from reparto.measure._gpu_watch import GpuWatch
from reparto.measure._machine import memory_bytes, num_cores
from reparto.spec import UsageSample

#: Groups of the lab's hosts are called so, see `lab`; they may have no limit.
_LAB = "reparto-"
_CHUNK = 1 << 14
#: Version 1 of control groups says a number like this where there is no limit.
_UNLIMITED_BYTES = 1 << 60


class UsageSampler:
    """Tells what was used since it was asked before.

    Made and asked in one thread at a time. Costs a few small reads of system files.

    Args:
        root: Where ``/proc`` and ``/sys`` are.

    Example:
        >>> with contextlib.closing(UsageSampler()) as sampler:
        ...     sampler.take().cpu_cores  # doctest: +SKIP
    """

    def __init__(self, root: Path = Path("/")) -> None:
        groups = control_groups(root)
        self._files: list[_File] = []
        groups = groups if _are_apart(groups) else {}
        self._cpu_s, self._cpu_limit_cores = self._cpu(root, groups)
        self._memory, self._memory_limit_bytes = self._memories(root, groups)
        self._interfaces = self._open(root / "proc/self/net/dev")
        self._devices = {path.parent.name for path in root.glob("sys/class/net/*/device")}
        self._gpus = GpuWatch()
        self._began_with = self._carried()
        self._last = time.monotonic(), self._cpu_s()

    def take(self) -> UsageSample:
        """Tell what was used since the last call, or since the sampler was made."""
        last_s, last_cpu_s = self._last
        now_s, cpu_s = self._last = time.monotonic(), self._cpu_s()
        interval_s = max(now_s - last_s, 1e-6)
        sent, received, inside = (
            None if before is None or after is None else max(after - before, 0)
            for before, after in zip(self._began_with, self._carried(), strict=True)
        )
        gpu = self._gpus.latest()
        return UsageSample(
            time_s=time.time(),
            interval_s=interval_s,
            cpu_cores=max(cpu_s - last_cpu_s, 0.0) / interval_s,
            cpu_limit_cores=self._cpu_limit_cores,
            memory_bytes=self._memory(),
            memory_limit_bytes=self._memory_limit_bytes,
            gpu_share=gpu.share if gpu is not None else None,
            gpu_memory_bytes=gpu.memory_bytes if gpu is not None else None,
            gpu_memory_limit_bytes=gpu.memory_limit_bytes if gpu is not None else None,
            sent_bytes=sent,
            received_bytes=received,
            loopback_bytes=inside,
        )

    def close(self) -> None:
        """Close the files, and end what asks the GPUs."""
        self._gpus.close()
        for file in self._files:
            file.close()

    # ----------------------------------------------------------------------------- CPU

    def _cpu(
        self, root: Path, groups: dict[str, ControlGroup]
    ) -> tuple[Callable[[], float], float]:
        """How to read the seconds that cores have worked, and how many cores there are."""
        limits, counts = groups.get("cpu"), groups.get("cpuacct")
        quota = limits.cpu_limit_cores() if limits is not None else math.inf
        granted = min(quota, num_cores())
        if limits is not None and limits.version == 2:
            spent = self._open(limits.folder / "cpu.stat")
            if spent is not None:
                return lambda: spent.number(r"^usage_usec (\d+)") / 1e6, granted
        elif counts is not None:
            total = self._open(counts.folder / "cpuacct.usage")
            if total is not None:
                return lambda: total.number(r"^(\d+)") / 1e9, granted
        stat = self._open(root / "proc/stat")
        if stat is None:
            return lambda: sum(os.times()[:4]), granted
        return lambda: _busy_s(stat.text()), len(re.findall(r"^cpu\d", stat.text(), re.M))

    # -------------------------------------------------------------------------- memory

    def _memories(
        self, root: Path, groups: dict[str, ControlGroup]
    ) -> tuple[Callable[[], int | None], int | None]:
        """How to read the memory in use, and how much there is."""
        machine = self._open(root / "proc/meminfo")
        if machine is None:
            return lambda: None, memory_bytes() or None
        size = machine.number(r"^MemTotal:\s+(\d+)") << 10
        group = groups.get("memory")
        limit = min(group.memory_limit_bytes(), size) if group is not None else size
        if group is not None:
            old = group.version == 1
            used = self._open(group.folder / f"memory.{'usage_in_bytes' if old else 'current'}")
            parts = self._open(group.folder / "memory.stat")
            idle = r"^total_inactive_file (\d+)" if old else r"^inactive_file (\d+)"
            if used is not None and parts is not None:
                return lambda: max(used.number(r"^(\d+)") - parts.number(idle), 0), int(limit)
        free = r"^MemAvailable:\s+(\d+)"
        return lambda: size - (machine.number(free) << 10), int(limit)

    # ------------------------------------------------------------------------- network

    def _carried(self) -> tuple[int | None, int | None, int | None]:
        """Bytes that the devices have sent and received, and bytes of the loopback."""
        if self._interfaces is None:
            return None, None, None
        sent = received = inside = 0
        for line in self._interfaces.text().splitlines():
            name, colon, numbers = line.strip().partition(":")
            if not colon:
                continue
            counts = numbers.split()
            if name == "lo":
                inside = int(counts[8])
            elif name in self._devices or not self._devices:
                sent, received = sent + int(counts[8]), received + int(counts[0])
        return sent, received, inside

    def _open(self, path: Path) -> _File | None:
        with contextlib.suppress(OSError):
            self._files.append(_File(path))
            return self._files[-1]
        return None


class _File:
    """A file of the system that says something new each time it is read."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)

    def text(self) -> str:
        found = b""
        while part := os.pread(self._fd, _CHUNK, len(found)):
            found += part
        return found.decode()

    def number(self, pattern: str) -> int:
        """The number that a pattern finds; 0 where it finds none."""
        match = re.search(pattern, self.text(), re.MULTILINE)
        return int(match[1]) if match is not None else 0

    def close(self) -> None:
        os.close(self._fd)


def _are_apart(groups: dict[str, ControlGroup]) -> bool:
    """Whether these groups make a host of their own: they are limited, or the lab's."""
    cpu, memory = groups.get("cpu"), groups.get("memory")
    is_limited = (cpu is not None and cpu.cpu_limit_cores() < math.inf) or (
        memory is not None and memory.memory_limit_bytes() < _UNLIMITED_BYTES
    )
    paths = [Path(group.path) for group in groups.values()]
    return is_limited or any(part.startswith(_LAB) for path in paths for part in path.parts)


def _busy_s(stat: str) -> float:
    """Seconds that all cores have worked: neither idle nor waiting for a disk."""
    # user nice system idle iowait irq softirq steal; guests are counted as users already
    ticks = [int(word) for word in stat[: stat.index("\n")].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
