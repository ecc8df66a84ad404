"""A survey as tables: the script, its step by size of the slice, the hosts, the links."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from reparto.plan import rate_in_words
from reparto.spec import Host, Link, SliceTime, Survey
from reparto.sweep._table import NONE, count, figures, seconds, size

MOST_LINKS = 12  # of more than these only the slowest, the median and the fastest are told


def fact_cells(survey: Survey) -> list[tuple[str, str]]:
    """What was measured of the script: names, and what they are; only what is known."""
    profile = survey.profile
    a_row = f", and {size(profile.row_bytes)} a row" if profile.row_bytes else ""
    facts = {
        "parameters": count(profile.num_parameters),
        "gradients": f"{size(profile.gradient_bytes)} a step",
        "batch": f"{profile.batch_rows} rows" if profile.batch_rows else "",
        "memory": f"{size(profile.base_bytes)}{a_row}" if profile.base_bytes else "not measured",
        "steps": "not known" if survey.num_steps is None else count(survey.num_steps),
        "start": f"{seconds(survey.startup_s)} to the first step" if survey.startup_s else "",
    }
    return [(name, told) for name, told in facts.items() if told]


def slice_cells(survey: Survey) -> list[tuple[str, ...]]:
    """Header and rows: a step of the plain script, and of a worker by rows of its slice.

    The worker is the first of the fewest that computed together: it is there to show what small
    slices lose. What more of them take from one another is in `host_cells`. Replicas that are
    apart do not meet within a step, such as for batch normalisation.
    """
    header = ("a step of", "rows", "step", "forward", "backward", "update", "rows/s")
    alone = survey.alone
    if not alone.rows:  # nothing in the plain script tells
        alone = replace(alone, rows=survey.profile.batch_rows)
    cells = [header, _slice_row("the plain script", alone)]
    if survey.workers:
        first = min(survey.workers, key=lambda one: (one.num_workers, one.rank))
        who = "one worker" if first.num_workers == 1 else f"one of {first.num_workers} workers"
        told = {False: who, True: f"{who}, apart"}
        slices = sorted(first.slices, key=lambda one: one.apart)
        cells += [_slice_row(told[one.apart], one) for one in slices]
    return cells


def host_cells(survey: Survey) -> list[tuple[str, ...]]:
    """Header and rows: the hosts, with how fast they are, the fastest 1.00."""
    speeds = host_speeds(survey)
    workers = Counter(survey.placement)
    return [
        ("host", "workers", "has", "speed"),
        *(
            (
                host.name,
                str(workers[host.name]),
                _has(host),
                f"{speeds[host.name]:.2f}" if host.name in speeds else NONE,
            )
            for host in survey.cluster.hosts
        ),
    ]


def host_speeds(survey: Survey) -> dict[str, float]:
    """Rows a second of hosts, all of their workers together, over those of the fastest.

    Taken where most workers compute at the same time, at the largest slice.
    """
    most = max((one.num_workers for one in survey.workers), default=0)
    rates: defaultdict[str, float] = defaultdict(float)
    for worker in survey.workers:
        if worker.num_workers == most and worker.slices:
            largest = max(worker.slices, key=lambda one: one.rows)
            rates[worker.host] += largest.rows / largest.step_s
    fastest = max(rates.values(), default=1.0)
    return {host: rate / fastest for host, rate in rates.items()}


def link_cells(survey: Survey) -> list[tuple[str, ...]]:
    """Header and rows: the links; nothing where there are none."""
    pairs = _pairs(survey.cluster.links)
    if not pairs:
        return []
    shown = pairs if len(pairs) <= MOST_LINKS else _some(pairs)
    return [
        ("link", "latency", "rate"),
        *((name, brief(one.latency_s), rate_in_words(one.rate_bits_per_s)) for name, one in shown),
    ]


def brief(number: float) -> str:
    """Write a short time with three figures, of which `seconds` would have fewer."""
    return f"{figures(1e3 * number)} ms" if number < 0.9995 else seconds(number)


def _slice_row(who: str, one: SliceTime) -> tuple[str, ...]:
    # In the plain script the backward pass cannot be told from the forward pass.
    passes = map(brief, (one.forward_s, one.backward_s)) if one.backward_s else (NONE, NONE)
    rate = figures(one.rows / one.step_s) if one.rows else NONE
    return (who, count(one.rows), brief(one.step_s), *passes, brief(one.update_s), rate)


def _has(host: Host) -> str:
    cores = f"{host.num_cores} core{'s' if host.num_cores > 1 else ''}"
    gpus = f", {host.num_gpus} GPU{'s' if host.num_gpus > 1 else ''}" if host.num_gpus else ""
    return cores + gpus


def _pairs(links: Sequence[Link]) -> list[tuple[str, Link]]:
    """Links with their names; two ways that are about as fast are one, as fast as the slower."""
    found: dict[tuple[str, str], Link] = {(one.source, one.target): one for one in links}
    pairs = []
    for (source, target), one in found.items():
        back = found.get((target, source))
        if back is None or not _are_alike(one, back):
            pairs.append((f"{source} → {target}", one))
        elif source < target:
            worse = min(one, back, key=lambda way: way.rate_bits_per_s)
            pairs.append((f"{source} ↔ {target}", worse))
    return pairs


def _are_alike(one: Link, back: Link) -> bool:
    slow, fast = sorted((one.rate_bits_per_s, back.rate_bits_per_s))
    return fast <= 1.1 * slow


def _some(pairs: Sequence[tuple[str, Link]]) -> list[tuple[str, Link]]:
    """The slowest, the median and the fastest."""
    ranked = sorted(pairs, key=lambda pair: pair[1].rate_bits_per_s)
    places = {"slowest": 0, "median": len(ranked) // 2, "fastest": -1}
    return [
        (f"the {name} of {len(ranked)}: {ranked[place][0]}", ranked[place][1])
        for name, place in places.items()
    ]
