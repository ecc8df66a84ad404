"""How much memory is free: what the machine has, or what the container leaves of it."""

import pytest

from reparto.search import _memory
from reparto.search._memory import free_bytes


def test_some_memory_is_free_and_no_more_than_there_is():
    assert 1 << 20 < free_bytes() < 1 << 50


@pytest.mark.parametrize(
    ("limit", "used", "cached"),
    [
        ("memory.max", "memory.current", "inactive_file"),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path, monkeypatch, limit, used, cached):
    monkeypatch.setattr(_memory, "_CGROUP", tmp_path)
    (tmp_path / "memory").mkdir()
    (tmp_path / limit).write_text("1000000\n")
    (tmp_path / used).write_text("900000\n")
    (tmp_path / limit).with_name("memory.stat").write_text(f"anon 5\n{cached} 50000\n")
    assert free_bytes() == 150_000
    (tmp_path / limit).write_text("max\n")
    assert free_bytes() > 150_000
