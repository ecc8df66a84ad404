"""What this machine offers to build a lab of: asked of the kernel, nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_TOOLS = ("ip", "tc", "nsenter", "sh")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What there is.

    Attributes:
        lacks: Why networks cannot be built by the kernel, in words; empty if they can.
        netem: Whether the kernel delays and loses packets.
        cgroups: Version of the control groups that limit CPUs; 0 if there are none.
        cpu_folders: Where a control group is made to limit and to count CPU time.
        memory_folder: Where one is made to limit memory; empty if nowhere.
        num_cores: Cores.
    """

    lacks: str = ""
    netem: bool = False
    cgroups: int = 0
    cpu_folders: tuple[str, ...] = ()
    memory_folder: str = ""
    num_cores: int = 1


@cache
def this_machine() -> Machine:
    """Look around, as far as this user may."""
    cores = os.cpu_count() or 1
    if lacks := _lacks():
        return Machine(lacks=lacks, num_cores=cores)
    try:
        with _tried() as space:
            refused = _run("ip", "link", "add", "rp-try", "netns", space, "type", "bridge")
            delay = ("qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
            netem = not _run("tc", "-n", space, *delay)
    except OSError as error:
        refused = str(error)
    if refused:
        lacks = f"network namespaces and bridges cannot be made: {refused}"
        return Machine(lacks=lacks, num_cores=cores)
    version, cpu_folders, memory_folder = control_groups(Path("/proc/mounts").read_text())
    return Machine(
        netem=netem,
        cgroups=version,
        cpu_folders=cpu_folders,
        memory_folder=memory_folder,
        num_cores=cores,
    )


def control_groups(mounts: str) -> tuple[int, tuple[str, ...], str]:
    """Version, folders for CPUs, folder for memory; from the text of ``/proc/mounts``."""
    first: dict[str, str] = {}
    unified = ""
    for line in mounts.splitlines():
        _, folder, kind, options, *_ = line.split()
        if kind == "cgroup":
            for option in options.split(","):
                first.setdefault(option, folder)
        elif kind == "cgroup2":
            unified = unified or folder
    if "cpu" in first:  # v1, or both: where the CPU controller is, v2 does not have it
        folders = dict.fromkeys(first[name] for name in ("cpu", "cpuacct") if name in first)
        return 1, tuple(folders), first.get("memory", "")
    return (2, (unified,), unified) if unified else (0, (), "")


def _lacks() -> str:
    if sys.platform != "linux":
        return "this is not Linux"
    if os.geteuid() != 0:
        return "you are not root"
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        return f"{missing[0]} is not installed (iproute2, util-linux)"
    return ""


@contextlib.contextmanager
def _tried() -> Iterator[str]:
    """A namespace to try things in; gone afterwards."""
    name = f"reparto-try-{os.getpid()}"
    refused = _run("ip", "netns", "add", name)
    if refused:
        raise OSError(refused)
    try:
        yield name
    finally:
        _run("ip", "netns", "del", name)


def _run(*command: str) -> str:
    """What it complained of; empty if it went well."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stderr.strip().splitlines() or ["failed"])[-1] if done.returncode else ""
