"""Hosts that are not there: ``rate=1gbit,hosts=8``. Made of those that were measured. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reparto.errors import UsageError
from reparto.plan._imagined_hosts import (
    counts_up_to,
    is_crowded,
    measured_hosts,
    on_hosts,
    slices_on,
)
from reparto.plan._imagined_talk import Network, imagined_exchanges, measured_network
from reparto.plan._speeds import Pace
from reparto.spec import Link, LocalCost, SliceTime, Survey, parse_rate, parse_time

#: Where nothing was measured: that of a switch between two hosts.
USUAL_LATENCY_S = 1e-4
#: What links are told to carry where nothing limits them.
NO_LIMIT = 1e12
MOST_HOSTS = 100_000


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What is assumed instead of measured; None where nothing is said.

    Attributes:
        hosts: How many, with a worker each; alike to those that were measured, in turn.
        rate: Of each host's line, each way, in bits a second; `NO_LIMIT` where there is none.
        latency: Seconds of a message.
        speed: Processors are so many times as fast.
        cpu: Cores' worth of time of each host.
        batch: Rows of the script's batch.
    """

    hosts: int | None = None
    rate: float | None = None
    latency: float | None = None
    speed: float | None = None
    cpu: float | None = None
    batch: int | None = None


def imagine(survey: Survey, text: str) -> Survey:
    """A survey of hosts that are not there, made of those that were measured.

    Args:
        survey: What was measured.
        text: Changes, with commas between them: ``rate=1gbit,hosts=8,latency=2ms,speed=2x``,
            ``cpu=0.5``, ``batch=256``.

    Raises:
        UsageError: If a change is unknown or no value of its kind, or if too little was measured
            to tell what it would mean; says what to do.
    """
    changes = parse_changes(text)
    _possible(survey, changes)
    imagined = on_hosts(survey, changes.hosts) if changes.hosts else survey
    whole = slices_on(survey, measured_hosts(survey)[0])[-1]
    faster = whole.step_s / _paced(whole, changes).step_s
    imagined = _networked(imagined, survey, changes, faster)
    imagined = replace(
        imagined,
        alone=_paced(survey.alone, changes),
        workers=tuple(
            replace(one, slices=tuple(_paced(part, changes) for part in one.slices))
            for one in imagined.workers
        ),
        costs=tuple(_cheaper(one, faster, changes.speed or 1.0) for one in imagined.costs),
        rehearsals=(),  # they were of other hosts
        trials=(),
    )
    return _with_batch(imagined, changes.batch) if changes.batch else imagined


# Reading.


def parse_changes(text: str) -> Changes:
    """Read ``key=value,key=value``.

    Raises:
        UsageError: If a key is unknown or comes twice, or its value cannot be read.

    Example:
        >>> parse_changes("rate=1gbit,hosts=8").hosts
        8
    """
    readers: dict[str, Callable[[str], Any]] = {
        "hosts": lambda value: _whole("hosts", value, MOST_HOSTS),
        "rate": _rate,
        "latency": lambda value: parse_time(value, "latency"),
        "speed": _speed,
        "cpu": lambda value: _positive("cpu", value, "cores' worth of time, such as 0.45 or 2"),
        "batch": lambda value: _whole("batch", value, 2**31),
    }
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (word.strip() for word in part.partition("="))
        if key not in readers or not equals:
            raise UsageError(
                f"{part!r} is no change that could be made",
                remedy=f"write key=value, the key one of {', '.join(readers)}",
            )
        if key in found:
            raise UsageError(f"{key} is given twice", remedy="leave out one of them")
        found[key] = readers[key](value)
    if not found:
        raise UsageError("nothing is changed", remedy='write "rate=1gbit,hosts=8"')
    return Changes(**found)


def _rate(value: str) -> float:
    rate = parse_rate(value, "rate")
    if rate is not None and rate <= 0:
        raise UsageError(f"rate: {value!r}", remedy="give 10mbit, 1gbit or none")
    return NO_LIMIT if rate is None else rate


def _speed(value: str) -> float:
    return _positive("speed", value.removesuffix("x").removesuffix("×"), "a factor, such as 2x")


def _positive(key: str, value: str, wanted: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise UsageError(f"{key}: {value!r}", remedy=f"give {wanted}")
    return number


def _whole(key: str, value: str, most: int) -> int:
    if not (value.isascii() and value.isdecimal() and 1 <= int(value) <= most):
        raise UsageError(f"{key}: {value!r}", remedy=f"give a number from 1 to {most}")
    return int(value)


def _possible(survey: Survey, changes: Changes) -> None:
    """Refuse what nothing that was measured tells about."""
    several = changes.hosts is not None and changes.hosts > 1
    if several and not (survey.workers and survey.exchanges):
        raise UsageError(
            f"hosts={changes.hosts}: one worker was measured, so nothing is known of what talking "
            "takes",
            remedy="measure two workers at least: --workers 2",
        )
    is_one = changes.hosts == 1 or (not several and len(set(survey.placement)) < 2)
    for key in ("rate", "latency"):
        if getattr(changes, key) is not None and is_one:
            raise UsageError(
                f"{key}: there is one host, which has nobody to talk to",
                remedy=f"say how many there are to be: hosts=4,{key}=…",
            )
    if several and not survey.cluster.links and changes.rate is None:
        raise UsageError(
            f"hosts={changes.hosts}: nothing was measured of a network between hosts",
            remedy="give its rate, too: rate=1gbit, or rate=none",
        )
    if changes.cpu is not None and survey.device != "cpu":
        raise UsageError(
            f"cpu: the script computes on {survey.device}", remedy="give speed=2x instead"
        )


# Computing.


def _paced(one: SliceTime, changes: Changes) -> SliceTime:
    """What becomes of a step."""
    speed = changes.speed or 1.0
    times = speed * _more_cores(one, changes.cpu)
    return replace(
        one,
        forward_s=one.forward_s / times,
        backward_s=one.backward_s / times,
        update_s=one.update_s / times,
        cpu_s=one.cpu_s / speed,
    )


def _cheaper(one: LocalCost, faster: float, speed: float) -> LocalCost:
    """What a strategy packs; another share of a core changes its processor time in nothing."""
    return replace(
        one,
        step_s=one.step_s / faster,
        cpu_s=one.cpu_s / speed,
        aside_s=one.aside_s / speed,
    )


def _more_cores(one: SliceTime, cores: float | None) -> float:
    """How many times as fast a step is with so many cores' worth of time.

    A worker is taken to make use of as many cores as it did, and of one at least.
    """
    used = one.cpu_s / one.step_s if one.step_s > 0 else 0.0
    return min(cores, max(1.0, used)) / used if cores is not None and used > 0 else 1.0


def _with_batch(survey: Survey, rows: int) -> Survey:
    """The script with another batch: as many samples in all, in more or fewer steps."""
    before = max(1, survey.profile.batch_rows)
    slices = survey.workers[0].slices if survey.workers else ()
    longer = rows / before
    if len(slices) > 1:
        longer = Pace(slices).step_s(rows) / Pace(slices).step_s(before)
    alone = survey.alone
    return replace(
        survey,
        profile=replace(survey.profile, batch_rows=rows),
        alone=SliceTime(
            rows=rows,
            forward_s=alone.forward_s * longer,
            backward_s=alone.backward_s * longer,
            update_s=alone.update_s * longer,
            cpu_s=alone.cpu_s * longer,
        ),
        num_steps=None if survey.num_steps is None else -(-survey.num_steps * before // rows),
    )


# The network.


def _networked(imagined: Survey, survey: Survey, changes: Changes, faster: float) -> Survey:
    """With what talking would take; the hosts are those that are imagined."""
    was = measured_network(survey)
    will = _wanted_network(was, changes, has_links=bool(survey.cluster.links))
    counts = sorted({one.num_workers for one in survey.exchanges})
    links: Sequence[Link] = survey.cluster.links
    if changes.hosts:
        counts = [count for count in counts_up_to(changes.hosts) if count > 1]
        links = _chain(imagined.placement, will)
    elif changes.rate is not None or changes.latency is not None:
        links = [_changed(link, changes) for link in links]
    exchanges = imagined_exchanges(
        survey.exchanges,
        was,
        will,
        counts,
        faster=faster,
        crowded=bool(changes.hosts) and is_crowded(survey),
    )
    return replace(
        imagined, exchanges=exchanges, cluster=replace(imagined.cluster, links=tuple(links))
    )


def _wanted_network(was: Network, changes: Changes, *, has_links: bool) -> Network:
    rate = was.rate_bits_per_s if changes.rate is None else changes.rate
    usual_s = was.latency_s if has_links or not changes.hosts else USUAL_LATENCY_S
    return Network(
        rate_bits_per_s=None if rate == NO_LIMIT else rate,
        latency_s=usual_s if changes.latency is None else changes.latency,
    )


def _changed(link: Link, changes: Changes) -> Link:
    return replace(
        link,
        rate_bits_per_s=link.rate_bits_per_s if changes.rate is None else changes.rate,
        latency_s=link.latency_s if changes.latency is None else changes.latency,
    )


def _chain(names: Sequence[str], network: Network) -> tuple[Link, ...]:
    """A link from each host to the next: all are alike, and of thousands there are millions."""
    rate = network.rate_bits_per_s or NO_LIMIT
    return tuple(
        Link(source=one, target=two, rate_bits_per_s=rate, latency_s=network.latency_s)
        for one, two in itertools.pairwise(names)
    )
