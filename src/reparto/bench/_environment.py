"""Where an evaluation is made: machine, devices, versions. Asks the system, imports no torch."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reparto._version import __version__
from reparto.bench._cells import FORMS
from reparto.measure import num_cores, num_gpus, torch_has_cuda

_ASK = ("--query-gpu=name,driver_version", "--format=csv,noheader")
_LIMIT_S = 20.0


def environment_of(devices: Sequence[str]) -> dict[str, Any]:
    """What is written beside rows of these devices."""
    found: dict[str, Any] = {
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": cpu_name(),
        "cores": num_cores(),
        "threads": threads(),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "reparto": __version__,
    }
    if any(device.startswith("cuda") for device in devices):
        found["gpus"] = gpu_names()
    return found


def devices_here() -> tuple[str, ...]:
    """The CPU, and the first GPU if torch can use it."""
    return ("cpu", "cuda:0") if num_gpus() and torch_has_cuda() else ("cpu",)


def forms_here() -> tuple[str, ...]:
    """Forms of inference that can be made with what is installed."""
    has_onnx = all(importlib.util.find_spec(name) for name in ("onnxruntime", "onnxscript"))
    return FORMS if has_onnx else FORMS[:3]


def cpu_only_forms() -> tuple[str, ...]:
    """Those of them that no GPU can take: ONNX Runtime has a package of its own for GPUs."""
    return () if _version("onnxruntime-gpu") else FORMS[3:]


def threads() -> int:
    """That compute on the CPU, in the process that measures."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) > 0 else num_cores()


def cpu_name(root: Path = Path("/")) -> str:
    """The processor, as it calls itself; ``CPU`` where it does not say."""
    try:
        text = (root / "proc/cpuinfo").read_text()
    except OSError:
        return "CPU"
    found = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return found[1].strip() if found is not None else "CPU"


def gpu_names() -> str:
    """The GPUs of this machine with their driver, as nvidia-smi tells; empty if it does not."""
    path = shutil.which("nvidia-smi")
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *_ASK], capture_output=True, text=True, timeout=_LIMIT_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = done.stdout.strip().splitlines() if done.returncode == 0 else []
    return "; ".join(line.replace(", ", ", driver ") for line in lines)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
