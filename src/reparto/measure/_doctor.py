"""Examines this machine for what keeps reparto from working, or from working well.

`examine` collects facts; `diagnose` judges them and is pure.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from reparto.measure import _machine, _network

GIB = 1 << 30
MIN_SHM_BYTES = 256 << 20

#: What the extras bring; see pyproject.toml.
_EXTRAS = {
    "bench": ("pyarrow", "onnxruntime", "onnxscript", "tensorboard"),
    "compare": ("matplotlib",),
    "ray": ("ray",),
    "examples": ("sklearn", "pandas", "matplotlib", "tqdm", "tensorboard"),
}


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU, as the driver tells of it."""

    name: str
    memory_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What there is.

    Attributes:
        host: The machine's name.
        system: Operating system and processor.
        python: Version of Python.
        torch: Version of torch; empty if it is not installed.
        torch_cuda: Whether that torch was built with CUDA.
        backends: How torch's processes can talk.
        num_cores: Cores that workers may use.
        num_cores_present: Cores of the machine.
        memory_bytes: Main memory.
        memory_free_bytes: What of it is free.
        shm_bytes: Shared memory, through which loaders' workers send batches.
        scratch_free_bytes: Free space for scratch files.
        gpus: NVIDIA GPUs.
        interfaces: Of the network.
        peer_address: The address that other machines see.
        name_addresses: What the machine's name resolves to.
        missing_extras: Extras of which something is not installed, and what.
        omp_num_threads: As the user has set it; empty if not.
    """

    host: str
    system: str
    python: str
    torch: str
    torch_cuda: bool
    backends: tuple[str, ...]
    num_cores: int
    num_cores_present: int
    memory_bytes: int
    memory_free_bytes: int
    shm_bytes: int
    scratch_free_bytes: int
    gpus: tuple[Gpu, ...]
    interfaces: tuple[_network.Interface, ...]
    peer_address: str
    name_addresses: tuple[str, ...]
    missing_extras: dict[str, tuple[str, ...]]
    omp_num_threads: str


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that is not as it should be.

    Attributes:
        severity: ``error`` where reparto cannot work, ``warning`` where it cannot work well,
            ``note`` for what is merely not there.
        what: What was found.
        remedy: What to do about it.
    """

    severity: Literal["error", "warning", "note"]
    what: str
    remedy: str


def examine() -> Facts:
    """Collect the facts. Imports torch, and so takes a while."""
    import platform  # slow to import, needed only here

    host = socket.gethostname()
    return Facts(
        host=host,
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        torch=_version("torch"),
        torch_cuda=_machine.torch_has_cuda(),
        backends=_backends(),
        num_cores=_machine.num_cores(),
        num_cores_present=os.cpu_count() or 1,
        memory_bytes=_machine.memory_bytes(),
        memory_free_bytes=_machine.memory_free_bytes(),
        shm_bytes=_space("/dev/shm", total=True),
        scratch_free_bytes=_space(tempfile.gettempdir()),
        gpus=_gpus(),
        interfaces=_network.interfaces(),
        peer_address=_network.peer_address(),
        name_addresses=_network.name_addresses(host),
        missing_extras=_missing_extras(),
        omp_num_threads=os.environ.get("OMP_NUM_THREADS", ""),
    )


def diagnose(facts: Facts) -> tuple[Problem, ...]:
    """Judge the facts."""
    return (*_of_torch(facts), *_of_machine(facts), *_of_network(facts), *_of_extras(facts))


def _of_torch(facts: Facts) -> Iterator[Problem]:
    if not facts.torch:
        yield Problem(severity="error", what="torch is not installed", remedy="pip install torch")
        return
    if "gloo" not in facts.backends:
        yield Problem(
            severity="error",
            what="this torch has no gloo: workers cannot talk",
            remedy="install an official build of torch",
        )
    if facts.gpus and not facts.torch_cuda:
        yield Problem(
            severity="warning",
            what=f"{len(facts.gpus)} GPU(s), but torch {facts.torch} was built without CUDA",
            remedy="install torch from https://pytorch.org with CUDA",
        )
    if facts.torch_cuda and len(facts.gpus) > 1 and "nccl" not in facts.backends:
        yield Problem(
            severity="warning",
            what="several GPUs, but torch has no NCCL: they talk through main memory",
            remedy="install torch from https://pytorch.org with CUDA",
        )


def _of_machine(facts: Facts) -> Iterator[Problem]:
    if facts.num_cores < facts.num_cores_present:
        yield Problem(
            severity="note",
            what=f"only {facts.num_cores} of {facts.num_cores_present} cores may be used",
            remedy="widen the container's CPU quota or the process's affinity (taskset -p)",
        )
    if facts.omp_num_threads:
        yield Problem(
            severity="note",
            what=f"OMP_NUM_THREADS={facts.omp_num_threads} is set and holds for every worker",
            remedy="unset it to have the cores shared out evenly",
        )
    if 0 < facts.memory_free_bytes < GIB:
        yield Problem(
            severity="warning",
            what=f"only {facts.memory_free_bytes / GIB:.1f} GiB of memory are free",
            remedy="each worker holds a model and a copy of the data: take fewer with --workers",
        )
    if 0 < facts.shm_bytes < MIN_SHM_BYTES:
        yield Problem(
            severity="warning",
            what=f"/dev/shm holds only {facts.shm_bytes >> 20} MiB: loaders' workers may die",
            remedy="docker run --shm-size=1g, or num_workers=0",
        )
    if facts.scratch_free_bytes < GIB:
        yield Problem(
            severity="warning",
            what=f"only {facts.scratch_free_bytes / GIB:.1f} GiB free for scratch files",
            remedy="set TMPDIR to a folder with more space",
        )


def _of_network(facts: Facts) -> Iterator[Problem]:
    if not facts.peer_address:
        yield Problem(
            severity="warning",
            what="no network: other machines cannot be reached",
            remedy="one machine works without; for several, bring an interface up",
        )
        return
    if not facts.name_addresses:
        yield Problem(
            severity="note",
            what=f"the name {facts.host} resolves to nothing",
            remedy=f"add '{facts.peer_address} {facts.host}' to /etc/hosts",
        )
    elif all(_network.is_loopback(address) for address in facts.name_addresses):
        yield Problem(
            severity="warning",
            what=f"the name {facts.host} resolves to {facts.name_addresses[0]}: peers that are "
            "told the name connect to themselves (reparto tells them the address)",
            remedy=f"put '{facts.peer_address} {facts.host}' into /etc/hosts; for scripts that "
            f"distribute themselves: export GLOO_SOCKET_IFNAME={_interface_of(facts)}",
        )


def _of_extras(facts: Facts) -> Iterator[Problem]:
    for extra, missing in facts.missing_extras.items():
        yield Problem(
            severity="note",
            what=f"extra {extra}: {', '.join(missing)} not installed",
            remedy=f"pip install 'reparto[{extra}]'",
        )


def _interface_of(facts: Facts) -> str:
    for interface in facts.interfaces:
        if facts.peer_address in interface.addresses:
            return interface.name
    return "eth0"


def _version(package: str) -> str:
    from importlib import metadata

    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def _backends() -> tuple[str, ...]:
    try:
        import torch.distributed as dist
    except ImportError:
        return ()
    if not dist.is_available():
        return ()
    known = {
        "gloo": dist.is_gloo_available,
        "nccl": dist.is_nccl_available,
        "mpi": dist.is_mpi_available,
    }
    return tuple(name for name, is_available in known.items() if is_available())


def _gpus() -> tuple[Gpu, ...]:
    present = _machine.num_gpus()
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
        done = subprocess.run(query, capture_output=True, text=True, timeout=10, check=True)
        rows = [line.rsplit(",", 1) for line in done.stdout.splitlines() if "," in line]
        return tuple(
            Gpu(name=name.strip(), memory_bytes=int(mib) << 20) for name, mib in rows[:present]
        )
    return tuple(Gpu(name="NVIDIA GPU") for _ in range(present))


def _missing_extras() -> dict[str, tuple[str, ...]]:
    missing = {
        extra: tuple(name for name in names if importlib.util.find_spec(name) is None)
        for extra, names in _EXTRAS.items()
    }
    return {extra: names for extra, names in missing.items() if names}


def _space(path: str, *, total: bool = False) -> int:
    with contextlib.suppress(OSError):
        usage = shutil.disk_usage(path)
        return usage.total if total else usage.free
    return 0
