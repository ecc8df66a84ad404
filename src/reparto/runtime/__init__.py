"""What a worker runs, and what a converted script calls."""

from reparto.runtime._api import (
    agree,
    barrier,
    init,
    is_main,
    later,
    now,
    prepare,
    rank,
    shard,
    world_size,
)

__all__ = [
    "agree",
    "barrier",
    "init",
    "is_main",
    "later",
    "now",
    "prepare",
    "rank",
    "shard",
    "world_size",
]
