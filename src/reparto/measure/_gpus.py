"""Which of this host's GPUs are unlike each other, as nvidia-smi tells."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping

_ASK = ("--query-gpu=index,uuid,name,memory.total", "--format=csv,noheader")
_LIMIT_S = 10.0


def unlike_gpus(
    env: Mapping[str, str] = os.environ, listing: str | None = None
) -> tuple[str, ...]:
    """Name one GPU of each kind, as ``CUDA_VISIBLE_DEVICES`` takes it.

    Args:
        env: Where the user may have made only some visible.
        listing: What nvidia-smi says; asked if not given.

    Returns:
        The names; empty if nothing is known.
    """
    rows = [line.split(", ") for line in (_listing() if listing is None else listing).splitlines()]
    gpus = [(row[0], row[1], ", ".join(row[2:])) for row in rows if len(row) >= 4]
    given = env.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        names = [name.strip() for name in given.split(",") if name.strip()]
        chosen = [(name, _kind(name, gpus)) for name in names]
    else:  # by their own names: CUDA may count them in another order
        chosen = [(uuid, kind) for _, uuid, kind in gpus]
    first: dict[str, str] = {}
    for name, kind in chosen:
        first.setdefault(kind, name)
    return tuple(first.values())


def _kind(name: str, gpus: list[tuple[str, str, str]]) -> str:
    for index, uuid, kind in gpus:
        if name == index or (name.startswith("GPU-") and uuid.startswith(name)):
            return kind
    return name  # nobody knows: like no other


def _listing() -> str:
    path = shutil.which("nvidia-smi")
    if path is None:
        return ""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run([path, *_ASK], capture_output=True, text=True, timeout=_LIMIT_S)
        return done.stdout if done.returncode == 0 else ""
    return ""
