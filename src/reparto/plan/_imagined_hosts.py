"""Hosts that are not there, with a worker each: copies of those that were measured, in turn. Pure.

A worker that was measured on a crowded machine tells little about one that has a host to itself:
of all measurements on a host, those with the fewest workers beside one another are taken.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from reparto.spec import Host, LocalCost, SliceTime, Survey, WorkerProfile


def on_hosts(survey: Survey, count: int) -> Survey:
    """The same script on so many hosts; what they say to each other is left as it was."""
    hosts = _repeated(survey, count)
    return replace(
        survey,
        cluster=replace(survey.cluster, hosts=hosts, links=()),
        placement=tuple(host.name for host in hosts),
        alone_host=hosts[0].name,
        workers=_workers(survey, hosts),
        costs=_costs(survey, count),
    )


def measured_hosts(survey: Survey) -> list[str]:
    """Each once, in the order of ranks."""
    return list(dict.fromkeys(survey.placement))


def is_crowded(survey: Survey) -> bool:
    """Whether workers that were measured together shared a host."""
    return len(set(survey.placement)) < len(survey.placement)


def slices_on(survey: Survey, host: str) -> tuple[SliceTime, ...]:
    """How fast a worker is that has a host to itself, or shares it with the fewest."""
    there = [one for one in survey.workers if one.host == host]
    beside = {
        one.num_workers: sum(other.num_workers == one.num_workers for other in there)
        for one in there
    }
    found: dict[tuple[bool, int], SliceTime] = {}
    for one in sorted(there, key=lambda one: one.num_workers):
        if beside[one.num_workers] == min(beside.values()):
            found.update(((not part.apart, part.rows), part) for part in one.slices)
    return tuple(found[key] for key in sorted(found)) or (survey.alone,)


def counts_up_to(num_hosts: int) -> list[int]:
    """Numbers of workers to be weighed: 1, 2, 4, … and all."""
    powers = [2**power for power in range(num_hosts.bit_length()) if 2**power < num_hosts]
    return [*powers, num_hosts]


def _repeated(survey: Survey, count: int) -> tuple[Host, ...]:
    """They are called a, b, a-2, b-2, a-3 and so on."""
    known = {host.name: host for host in survey.cluster.hosts}
    kinds = [known.get(name, Host(name=name)) for name in measured_hosts(survey)]
    found = []
    for index in range(count):
        turn, which = divmod(index, len(kinds))
        name = kinds[which].name + (f"-{turn + 1}" if turn else "")
        found.append(replace(kinds[which], name=name, enter=(), line=None))
    return tuple(found)


def _workers(survey: Survey, hosts: Sequence[Host]) -> tuple[WorkerProfile, ...]:
    """A worker on every host, for every number of workers that may be weighed."""
    known = [slices_on(survey, name) for name in measured_hosts(survey)]
    return tuple(
        WorkerProfile(
            rank=rank, host=hosts[rank].name, num_workers=count, slices=known[rank % len(known)]
        )
        for count in counts_up_to(len(hosts))
        for rank in range(count)
    )


def _costs(survey: Survey, num_workers: int) -> tuple[LocalCost, ...]:
    """What strategies cost a worker; the median, as some were disturbed while it was measured."""
    known: list[LocalCost] = []
    for one in survey.costs:
        if all(one.strategy != other.strategy for other in known):
            known.append(one)
    found = []
    for strategy in (one.strategy for one in known):
        alike = [one for one in survey.costs if one.strategy == strategy]
        counts = [one.num_workers for one in alike]
        count = min(counts) if is_crowded(survey) else max(counts)
        there = [one for one in alike if one.num_workers == count]
        found.append(
            LocalCost(
                strategy=strategy,
                num_workers=num_workers,
                step_s=statistics.median_low(one.step_s for one in there),
                cpu_s=statistics.median_low(one.cpu_s for one in there),
                aside_s=statistics.median_low(one.aside_s for one in there),
            )
        )
    return tuple(found)
