"""What memory is left, and which GPUs are unlike."""

import pytest

from reparto.measure import memory_left_bytes, unlike_gpus

GIB = 1 << 30
LISTING = """\
0, GPU-aa, NVIDIA A100, 40960 MiB
1, GPU-bb, NVIDIA A100, 40960 MiB
2, GPU-cc, NVIDIA T4, 15360 MiB
"""


def machine(root, *, free, limit=None, used=0, cached=0):
    """A root with as much memory free, and a control group of version 2."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {free >> 10} kB\n")
    (root / "proc/self/cgroup").write_text("0::/box\n")
    mount = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
    (root / "proc/self/mountinfo").write_text(mount)
    group = root / "sys/fs/cgroup/box"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n" if limit is None else f"{limit}\n")
    (group / "memory.current").write_text(f"{used}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"free": 8 * GIB}, 8 * GIB),
        ({"free": 8 * GIB, "limit": 4 * GIB, "used": GIB}, 3 * GIB),
        ({"free": 8 * GIB, "limit": 4 * GIB, "used": 2 * GIB, "cached": GIB}, 3 * GIB),
        ({"free": 2 * GIB, "limit": 4 * GIB, "used": GIB}, 2 * GIB),
    ],
)
def test_less_of_machine_and_control_group_is_left(tmp_path, given, expected):
    machine(tmp_path, **given)
    assert memory_left_bytes(tmp_path) == expected


def test_nothing_is_known_where_the_system_does_not_say(tmp_path):
    assert memory_left_bytes(tmp_path) == 0


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, ("GPU-aa", "GPU-cc")),
        ("1,2", ("1", "2")),
        ("0,1", ("0",)),
        ("GPU-b,GPU-a", ("GPU-b",)),
        ("MIG-1,MIG-2", ("MIG-1", "MIG-2")),
        ("", ()),
    ],
)
def test_one_gpu_of_each_kind_that_is_visible_is_named(visible, expected):
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert unlike_gpus(env, LISTING) == expected
