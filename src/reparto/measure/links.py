"""What the links between workers carry, found by sending: every pair once, pairs side by side.

    round 0    0─3  1─2        a tournament: in each round everyone has one partner, so
    round 1    0─2  3─1        nobody's own line carries two at once; a line between
    round 2    0─1  2─3        switches may, as it does in the training

Not part of the package's public list: it brings torch, and workers call it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from reparto.comm import Group
from reparto.spec import Link

NUM_PINGS = 3
#: Sent first. What a larger one takes more tells the rate: the first bytes pass a shaped line at
#: once. Where the first one takes a moment only, the largest one tells most.
SMALL_BYTES, LARGER_BYTES, LARGE_BYTES = 64 * 1024, 256 * 1024, 1024 * 1024
MOMENT_S = 0.004
#: On such a line it is sent so often, and the quickest counts: one of two workers may just have
#: been kept from its processor.
REPEATS = 3


def measure_links(group: Group, names: Sequence[str]) -> tuple[Link, ...]:
    """Measure every pair of hosts; collective.

    Args:
        group: All workers.
        names: Of the host of each; of several workers on one host the first one measures.

    Returns:
        One link a pair, the same on every worker.
    """
    first = {name: names.index(name) for name in dict.fromkeys(names)}
    members = list(first.values())
    rank, size = group.rank(), group.size()
    mine = torch.zeros(size, 2, dtype=torch.float64)
    for pairs in tournament(members):
        group.barrier().wait()
        for one, two in pairs:
            if rank == one:
                latency, rate = _asked(group, two)
                mine[two] = torch.tensor([latency, rate])
            elif rank == two:
                _answered(group, one)
    found = group.gather_all(mine)
    return tuple(
        Link(
            source=names[one],
            target=names[two],
            latency_s=float(found[one][two, 0]),
            rate_bits_per_s=float(found[one][two, 1]),
        )
        for pairs in tournament(members)
        for one, two in pairs
    )


def tournament(members: Sequence[int]) -> list[list[tuple[int, int]]]:
    """Rounds of pairs, the smaller number first, in which everyone meets everyone once."""
    seats: list[int | None] = [*members, *([None] if len(members) % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        half = len(seats) // 2
        pairs = []
        for left, right in zip(seats[:half], reversed(seats[half:]), strict=True):
            if left is not None and right is not None:
                pairs.append((min(left, right), max(left, right)))
        rounds.append(pairs)
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def _asked(group: Group, peer: int) -> tuple[float, float]:
    """Seconds one way, and bits a second."""
    latency = min(_round_trip(group, peer, 1) for _ in range(NUM_PINGS)) / 2
    seconds, size = min(_round_trip(group, peer, SMALL_BYTES) for _ in range(2)), SMALL_BYTES
    is_quick = seconds < MOMENT_S
    group.send([torch.tensor([float(is_quick)])], peer, 0).wait()
    larger = LARGE_BYTES if is_quick else LARGER_BYTES
    tries = [_round_trip(group, peer, larger) for _ in range(REPEATS if is_quick else 1)]
    more_s = (min(tries) - seconds) / 2
    if more_s > 0:
        return latency, 8 * (larger - size) / more_s
    return latency, 8 * size / max(seconds / 2 - latency, 1e-9)


def _answered(group: Group, peer: int) -> None:
    for size in [*[1] * NUM_PINGS, SMALL_BYTES, SMALL_BYTES]:
        _returned(group, peer, size)
    is_quick = torch.zeros(1)
    group.recv([is_quick], peer, 0).wait()
    for _ in range(REPEATS if is_quick else 1):
        _returned(group, peer, LARGE_BYTES if is_quick else LARGER_BYTES)


def _round_trip(group: Group, peer: int, size: int) -> float:
    payload = torch.zeros(size, dtype=torch.uint8)
    began = time.perf_counter()
    group.send([payload], peer, 0).wait()
    group.recv([payload], peer, 0).wait()
    return time.perf_counter() - began


def _returned(group: Group, peer: int, size: int) -> None:
    payload = torch.zeros(size, dtype=torch.uint8)
    group.recv([payload], peer, 0).wait()
    group.send([payload], peer, 0).wait()
