"""How much memory is free, for this process."""

from __future__ import annotations

from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def free_bytes() -> int:
    """Memory that is free, or would be if it were asked for; a container's limit counts."""
    found = 1 << 30
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            found = int(line.split()[1]) * 1024
    return min(found, _left_in_container())


def _left_in_container() -> int:
    """What the control group leaves; caches that can be dropped count as free."""
    for limit, used, cached in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most = int((_CGROUP / limit).read_text())
            taken = int((_CGROUP / used).read_text())
            stat = (_CGROUP / limit).with_name("memory.stat").read_text()
        except (OSError, ValueError):  # no such group, or "max"
            continue
        lines = dict(line.split() for line in stat.splitlines() if len(line.split()) == 2)
        return max(0, most - taken + int(lines.get(cached, 0)))
    return 1 << 62
