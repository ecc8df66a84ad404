"""The control groups that this process is in: where they lie, and what they grant.

    /proc/self/cgroup     4:memory:/lab/a                          which group, by hierarchy
    /proc/self/mountinfo  … / /sys/fs/cgroup/memory … cgroup …     where that hierarchy is seen

A group may be limited by itself or by any that it lies in, so limits are looked for upwards.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("cpu", "cpuacct", "memory")


@dataclass(frozen=True, kw_only=True)
class ControlGroup:
    """Where a controller accounts for this process.

    Attributes:
        version: Of control groups: 1, one hierarchy a controller, or 2, one for all.
        path: As the kernel names it; ``/`` is that of the machine, or of a container.
        folder: Where its files are.
        mount: The uppermost folder of the hierarchy that is seen from here.
    """

    version: int
    path: str
    folder: Path
    mount: Path

    def cpu_limit_cores(self) -> float:
        """Cores' worth of time that it grants; infinite if it does not say."""
        return self._least(_cpu_quota)

    def memory_limit_bytes(self) -> float:
        """Memory that it grants; infinite if it does not say."""
        name = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        return self._least(lambda folder: float((folder / name).read_text()))

    def _least(self, read: Callable[[Path], float]) -> float:
        least, folder = math.inf, self.folder
        while True:
            with contextlib.suppress(OSError, ValueError):  # not said here, or "max"
                least = min(least, read(folder))
            if folder in (self.mount, folder.parent):
                return least
            folder = folder.parent


def control_groups(root: Path = Path("/")) -> dict[str, ControlGroup]:
    """Find the groups of this process, by controller; those that are not there are left out.

    Args:
        root: Where ``/proc`` and ``/sys`` are.
    """
    try:
        member = (root / "proc/self/cgroup").read_text().splitlines()
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return {}
    paths: dict[str, str] = {}
    for line in member:
        _, names, path = line.split(":", 2)
        paths |= dict.fromkeys(names.split(","), path)  # "" is the hierarchy of version 2
    found: dict[str, ControlGroup] = {}
    for line in mounts:
        fields, _, kind = line.partition(" - ")
        above, mount = fields.split()[3:5]
        version = {"cgroup": 1, "cgroup2": 2}.get(kind.split()[0])
        if version is None:
            continue
        shared = kind.split()[2].split(",") if version == 1 else CONTROLLERS
        for name in CONTROLLERS:
            own = name if name in paths else ""
            if name in shared and own in paths and (own == "") == (version == 2):
                where = root / mount.lstrip("/")
                found.setdefault(name, _group(version, paths[own], above, where))
    return found


def _group(version: int, path: str, above: str, mount: Path) -> ControlGroup:
    # A container may see only what lies below its own group: that is then the mount's root.
    within = Path(path).is_relative_to(above) and ".." not in Path(path).parts
    folder = mount / Path(path).relative_to(above) if within else mount
    return ControlGroup(version=version, path=path, folder=folder, mount=mount)


def _cpu_quota(folder: Path) -> float:
    if (folder / "cpu.max").exists():
        quota, period = (folder / "cpu.max").read_text().split()
    else:
        quota, period = (
            (folder / f"cpu.cfs_{word}_us").read_text() for word in ("quota", "period")
        )
    return float(quota) / float(period) if float(quota) > 0 else math.inf
