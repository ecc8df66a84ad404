"""How much memory a process on this machine can still take."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from reparto.measure._control_groups import ControlGroup, control_groups
from reparto.measure._machine import memory_free_bytes


def memory_left_bytes(root: Path = Path("/")) -> int:
    """Tell what is free: of the machine, or of a control group (a container) that grants less.

    Args:
        root: Where ``/proc`` and ``/sys`` are.

    Returns:
        Bytes; 0 if unknown.
    """
    free = memory_free_bytes(root)
    group = control_groups(root).get("memory")
    left = _left(group) if group is not None else None
    return free if left is None else min(left, free) if free else left


def _left(group: ControlGroup) -> int | None:
    """What a limited group has not used yet; what it has cached only, it can use."""
    limit = group.memory_limit_bytes()
    if limit >= 1 << 60:  # version 1 says a number like this where there is no limit
        return None
    used, idle = (
        ("memory.usage_in_bytes", "total_inactive_file")
        if group.version == 1
        else ("memory.current", "inactive_file")
    )
    with contextlib.suppress(OSError, ValueError):
        taken = int((group.folder / used).read_text())
        found = re.search(rf"^{idle} (\d+)", (group.folder / "memory.stat").read_text(), re.M)
        cached = int(found[1]) if found is not None else 0
        return max(0, int(limit) - max(0, taken - cached))
    return int(limit)
