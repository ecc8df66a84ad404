"""What talking would take over another network, taken apart from what it took over a real one.

    measured  = rounds of latency + bytes of the busiest line / its rate + processing: what remains
    imagined  = the same three with another latency, rate, number of workers, speed of processors

What remains of the smallest message is what any operation costs; what remains beyond it grows with
the bytes of the busiest line. Where less was measured than latency and rate would take (a line may
let a burst pass), that holds for the imagined network in the same proportion. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reparto.plan._fabric import between, busiest_bytes, rounds
from reparto.spec import Exchange, Pattern, Survey, wire_bytes

#: Smaller ones tell little about large ones; what was not measured up to it is modelled up to it.
LARGEST_BYTES = 4 * 1024 * 1024
#: On one machine that plays several, a line that carries more is not limited: it is copied.
MEMORY_SPEED = 1.5e9


@dataclass(frozen=True, kw_only=True)
class Network:
    """What joins hosts.

    Attributes:
        rate_bits_per_s: Of each host's line, each way; None where processors are what limits it.
        latency_s: Of a message.
    """

    rate_bits_per_s: float | None
    latency_s: float

    def seconds(self, pattern: Pattern, size_bytes: float, num_workers: int) -> float:
        """What the network alone takes for an operation."""
        load = busiest_bytes(pattern, size_bytes, num_workers)
        wire_s = 8 * load / self.rate_bits_per_s if self.rate_bits_per_s else 0.0
        return self.latency_s * rounds(pattern, num_workers) + wire_s


def measured_network(survey: Survey) -> Network:
    """What joins the hosts of a survey; within one machine there is nothing but processors."""
    links = survey.cluster.links
    if not links:
        return Network(rate_bits_per_s=None, latency_s=0.0)
    slowest = min(link.rate_bits_per_s for link in links)
    is_played = all(host.enter or host.line for host in survey.cluster.hosts)
    return Network(
        rate_bits_per_s=None if is_played and slowest > MEMORY_SPEED else slowest,
        latency_s=max(link.latency_s for link in links),
    )


def imagined_exchanges(
    measured: Iterable[Exchange],
    was: Network,
    will: Network,
    counts: Sequence[int],
    *,
    faster: float = 1.0,
    crowded: bool = False,
) -> tuple[Exchange, ...]:
    """Every operation over an imagined network.

    Args:
        measured: Over a real one.
        was: The real one.
        will: The imagined one.
        counts: Numbers of workers that are wanted.
        faster: Processors are so many times as fast.
        crowded: Whether workers that were measured together shared a processor, so that the
            fewest of them tell best what one with a processor of its own does.
    """
    known: dict[Pattern, dict[int, list[Exchange]]] = {}
    for one in measured:
        known.setdefault(one.pattern, {}).setdefault(one.num_workers, []).append(one)
    return tuple(
        exchange
        for by_count in known.values()
        for count in counts
        for exchange in _imagined(
            by_count[_reference(by_count, count, crowded)], was, will, count, faster
        )
    )


def _reference(counts: Iterable[int], wanted: int, crowded: bool) -> int:
    """The measured number of workers that tells most about another one."""
    if crowded:
        return min(counts)
    return min(counts, key=lambda count: (abs(math.log(count / wanted)), count))


def _imagined(
    measured: Sequence[Exchange], was: Network, will: Network, count: int, faster: float
) -> list[Exchange]:
    measured = sorted(measured, key=lambda one: one.size_bytes)
    pattern, before = measured[0].pattern, measured[0].num_workers
    walls = [(one.size_bytes, one.seconds) for one in measured]
    cpus = [(one.size_bytes, one.cpu_s) for one in measured]
    smallest, took_s = walls[0]
    least_s = max(0.0, took_s - was.seconds(pattern, smallest, before)) if len(walls) > 1 else 0.0
    least_cpu_s = cpus[0][1] if len(cpus) > 1 else 0.0
    found = []
    for size in sorted({*(size for size, _ in walls), LARGEST_BYTES}):
        took_s, network_s = between(walls, size), was.seconds(pattern, size, before)
        bursts = min(1.0, took_s / network_s) if network_s else 1.0
        load = busiest_bytes(pattern, size, count) / busiest_bytes(pattern, size, before)
        work = wire_bytes(pattern, size, count) / wire_bytes(pattern, size, before)
        left_s = max(0.0, took_s - network_s)
        cpu_s = between(cpus, size)
        found.append(
            Exchange(
                pattern=pattern,
                num_workers=count,
                size_bytes=size,
                seconds=bursts * will.seconds(pattern, size, count)
                + _grown(left_s, least_s, load) / faster,
                cpu_s=_grown(cpu_s, least_cpu_s, work) / faster,
            )
        )
    return found


def _grown(seconds: float, least_s: float, times: float) -> float:
    """What is beyond the least, so many times; and the least."""
    return min(least_s, seconds) + max(0.0, seconds - least_s) * times
