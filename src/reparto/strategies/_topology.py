"""Who stands beside whom: an order of workers that suits the links between them. Pure.

A ring is as fast as its slowest edge, and crosses a shared line as often as it must:

    hosts 0, 2 on one switch, 1, 3 on another; ═ crosses from one to the other

    order 0 1 2 3           0 ═ 1 ═ 2 ═ 3 ═ 0       four crossings
    order 0 2 1 3           0 ─ 2 ═ 1 ─ 3 ═ 0       two
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from math import inf

from reparto.spec import Link

#: Up to so many hosts the best ring is found; beyond it, a good one.
EXACT_UP_TO = 12
#: What one message carries, to weigh latency against rate.
MESSAGE_BYTES = 256 * 1024

Costs = list[list[float]]


def costs_of(
    links: Sequence[Link], hosts: Sequence[str], size_bytes: int = MESSAGE_BYTES
) -> Costs:
    """Seconds for a message between any two workers.

    Args:
        links: Of every pair of hosts, in either direction.
        hosts: The host of each worker; on one host nothing is waited for.
        size_bytes: The size of the message.
    """
    known: dict[tuple[str, str], float] = {}
    for link in links:
        seconds = link.latency_s + 8 * size_bytes / link.rate_bits_per_s
        known[link.source, link.target] = known[link.target, link.source] = seconds
    return [[0.0 if one == two else known[one, two] for two in hosts] for one in hosts]


def ring_order(costs: Costs) -> list[int]:
    """The workers around a ring: its slowest edge is fast, and then all of them together are.

    Workers between which nothing is waited for (of one host) are kept side by side.
    """
    bundles = _bundles(costs)
    heads = [bundle[0] for bundle in bundles]
    between = [[costs[one][two] for two in heads] for one in heads]
    if len(heads) <= 3:
        order = list(range(len(heads)))  # there is only one ring
    elif len(heads) <= EXACT_UP_TO:
        order = _best_ring(between)
    else:
        order = _good_ring(between)
    return [rank for number in order for rank in bundles[number]]


def server_order(costs: Costs, places: Sequence[int]) -> list[int]:
    """The workers in an order in which those that all others reach best stand at some places.

    Args:
        costs: Between any two.
        places: Where servers stand.
    """
    reach = [sum(costs[one][two] for one in range(len(costs))) for two in range(len(costs))]
    best: list[int] = []
    for _ in places:
        # Two servers on one host share its line: rather one on another, if it is nearly as good.
        best.append(
            min(
                (rank for rank in range(len(costs)) if rank not in best),
                key=lambda rank: (
                    reach[rank] * (2 if any(costs[rank][one] == 0 for one in best) else 1),
                    rank,
                ),
            )
        )
    others = iter([rank for rank in range(len(costs)) if rank not in best])
    chosen = dict(zip(sorted(places), best, strict=True))
    return [chosen[place] if place in chosen else next(others) for place in range(len(costs))]


def _bundles(costs: Costs) -> list[list[int]]:
    """Workers of one host together, in the order of their first."""
    found: list[list[int]] = []
    for rank in range(len(costs)):
        home = next((one for one in found if costs[one[0]][rank] == 0), None)
        if home is None:
            found.append([rank])
        else:
            home.append(rank)
    return found


def _edges(costs: Costs, order: Sequence[int]) -> list[float]:
    return [costs[one][two] for one, two in pairwise([*order, order[0]])]


def _best_ring(costs: Costs) -> list[int]:
    """The smallest slowest edge first; among those rings, the smallest sum (Held and Karp)."""
    limits = sorted({costs[one][two] for one, two in combinations(range(len(costs)), 2)})
    low, high = 0, len(limits) - 1
    while low < high:
        middle = (low + high) // 2
        if _shortest_ring(costs, limits[middle]) is not None:
            high = middle
        else:
            low = middle + 1
    found = _shortest_ring(costs, limits[low])
    assert found is not None  # all edges together make a ring
    return found


def _shortest_ring(costs: Costs, limit: float) -> list[int] | None:
    """The ring of the smallest sum without edges above a limit; None if there is none."""
    count = len(costs)
    table: dict[tuple[int, int], tuple[float, int]] = {(1, 0): (0.0, 0)}
    for visited in range(1, 1 << count, 2):
        for last in range(count):
            here = table.get((visited, last))
            if here is None:
                continue
            for following in range(1, count):
                cost = costs[last][following]
                if visited >> following & 1 or cost > limit:
                    continue
                key = visited | 1 << following, following
                if here[0] + cost < table.get(key, (inf, 0))[0]:
                    table[key] = here[0] + cost, last
    everyone = (1 << count) - 1
    ends = [
        (table[everyone, last][0] + costs[last][0], last)
        for last in range(1, count)
        if (everyone, last) in table and costs[last][0] <= limit
    ]
    if not ends:
        return None
    order, visited, last = [], everyone, min(ends)[1]
    while visited:
        order.append(last)
        visited, last = visited & ~(1 << last), table[visited, last][1]
    return order[::-1]


def _good_ring(costs: Costs) -> list[int]:
    """To the nearest one that is left, then turn stretches around as long as that helps."""
    order, left = [0], set(range(1, len(costs)))
    while left:
        order.append(min(left, key=lambda one: (costs[order[-1]][one], one)))
        left.remove(order[-1])

    def worth(candidate: list[int]) -> tuple[float, float]:
        edges = _edges(costs, candidate)
        return max(edges), sum(edges)

    improved = True
    while improved:
        improved = False
        for begin, end in combinations(range(1, len(order) + 1), 2):
            turned = order[:begin] + order[begin:end][::-1] + order[end:]
            if worth(turned) < worth(order):
                order, improved = turned, True
    return order
