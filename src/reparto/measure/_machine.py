"""What this machine offers: cores, GPUs, memory. Cheap: read from the system, no torch."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path

from reparto.spec import Host


def local_host() -> Host:
    """Describe this machine as a host for workers."""
    return Host(
        name=socket.gethostname(),
        num_cores=num_cores(),
        num_gpus=num_gpus() if torch_has_cuda() else 0,
        memory_bytes=memory_bytes(),
    )


def num_cores() -> int:
    """Count the cores that this process may use: its affinity, and a container's quota."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not Linux
        allowed = os.cpu_count() or 1
    return max(1, math.ceil(min(allowed, cpu_quota())))


def cpu_quota() -> float:
    """Return the cores' worth of time that a control group grants; infinite if it does not say."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return float(quota) / float(period)
    with contextlib.suppress(OSError, ValueError):
        folder = Path("/sys/fs/cgroup/cpu")
        quota_us = float((folder / "cpu.cfs_quota_us").read_text())
        if quota_us > 0:
            return quota_us / float((folder / "cpu.cfs_period_us").read_text())
    return math.inf


def num_gpus(env: Mapping[str, str] = os.environ, devices: str = "/dev") -> int:
    """Count the NVIDIA GPUs that a CUDA program started now would see."""
    present = sum(
        bool(re.fullmatch(r"nvidia\d+", entry.name)) for entry in Path(devices).glob("nvidia*")
    )
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None or present == 0:
        return present
    names = [name.strip() for name in visible.split(",")]
    if "-1" in names:  # CUDA stops reading there
        names = names[: names.index("-1")]
    return len([name for name in names if name])


def memory_bytes() -> int:
    """Return the size of the main memory; 0 if unknown."""
    with contextlib.suppress(OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return 0


def memory_free_bytes(root: Path = Path("/")) -> int:
    """Return how much memory programs can still take; 0 if unknown."""
    with contextlib.suppress(OSError):
        text = (root / "proc/meminfo").read_text()
        found = re.search(r"^MemAvailable:\s+(\d+) kB", text, re.MULTILINE)
        return int(found[1]) << 10 if found is not None else 0
    return 0


def torch_has_cuda() -> bool:
    """Whether the installed torch was built with CUDA, found without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    with contextlib.suppress(OSError):
        text = Path(spec.origin).with_name("version.py").read_text()
        built = re.search(r"^cuda\b[^=]*=\s*(.*)$", text, re.MULTILINE)
        return built is not None and built[1].strip() != "None"
    return False
