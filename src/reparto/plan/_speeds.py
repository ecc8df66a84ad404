"""How fast workers compute, by how many of them do. Pure."""

from __future__ import annotations

from collections import defaultdict

from reparto.measure._paces import Pace, shared_rows
from reparto.spec import Survey, WorkerProfile

__all__ = ["Pace", "members", "paces", "shared_rows"]


def paces(survey: Survey, num_workers: int, *, apart: bool = False) -> list[Pace]:
    """How fast each of so many workers is while all of them compute.

    Args:
        survey: What was measured.
        num_workers: How many.
        apart: Whether replicas are apart meanwhile.
    """
    by_rank: dict[int, list[WorkerProfile]] = defaultdict(list)
    for one in survey.workers:
        by_rank[one.rank].append(one)
    found = []
    for rank in members(survey, num_workers):
        known = by_rank.get(rank) or survey.workers  # nobody looked: as the others
        nearest = min(known, key=lambda one: abs(one.num_workers - num_workers))
        found.append(Pace.of(nearest.slices, apart=apart))
    return found


def members(survey: Survey, num_workers: int) -> list[int]:
    """The ranks that were measured together for so many workers."""
    ranks = sorted({one.rank for one in survey.workers if one.num_workers == num_workers})
    return ranks if len(ranks) == num_workers else list(range(num_workers))
