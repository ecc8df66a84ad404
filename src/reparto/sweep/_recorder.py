"""Recorder: keeps what the hosts of a run tell of their CPUs, memory, GPUs and network.

However long a run is, a host has at most `MAX_SAMPLES`: when they are there, neighbours become one
and from then on twice as many are awaited for each.

    1 1 1 1 1 1 1 1    full ──►  2 2 2 2 · · · ·  ──►  2 2 2 2 2 2 2 2    full ──►  4 4 4 4 · · · ·
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from reparto import api
from reparto.engines import Launch
from reparto.spec import Begin, Event, Plan, Program, Recording, Usage, UsageSample

if TYPE_CHECKING:
    from reparto.convert import Result

USAGE_EVERY_S = 0.5
MAX_SAMPLES = 2048
_STUB = 0.5  # an interval is too short to stand alone if it has not this part of the one before


class Recorder(api.Watcher):
    """Records one run, and passes on all that happens in it.

    The run's `Options.usage_every_s` decides how often hosts tell; `USAGE_EVERY_S` will do.

    Args:
        watcher: Is told what happens.

    Example:
        >>> recorder = Recorder(screen)  # doctest: +SKIP
        >>> api.run(job, recorder)  # doctest: +SKIP
        >>> usage_png(recorder.recording())  # doctest: +SKIP
    """

    def __init__(self, watcher: api.Watcher | None = None) -> None:
        self._watcher = watcher or api.Watcher()
        self._begins: list[float] = []
        self._hosts: dict[str, _Series] = {}

    def found(self, result: Result) -> None:
        """Pass it on."""
        self._watcher.found(result)

    def planned(self, program: Program, plan: Plan, launch: Launch) -> None:
        """Pass it on."""
        self._watcher.planned(program, plan, launch)

    def event(self, event: Event) -> None:
        """Keep what is told of usage; pass everything on."""
        if isinstance(event, Begin):
            self._begins.append(event.time_s)
        elif isinstance(event, Usage):
            self._hosts.setdefault(event.host, _Series(event.rank)).add(event.sample)
        self._watcher.event(event)

    def has_enough(self) -> bool:
        """Ask the watcher."""
        return self._watcher.has_enough()

    def recording(self) -> Recording:
        """What is known by now; hosts that have told nothing are not in it."""
        hosts = sorted(self._hosts.items(), key=lambda item: item[1].rank)
        series = {host: series.samples() for host, series in hosts}
        first = [samples[0].time_s for samples in series.values()]
        began_s = min(self._begins or first, default=0.0)
        return Recording(
            began_s=began_s,
            hosts={
                host: tuple(
                    dataclasses.replace(one, time_s=one.time_s - began_s) for one in samples
                )
                for host, samples in series.items()
            },
        )


class _Series:
    """What one host has told, through that worker."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._kept: list[UsageSample] = []
        self._pending: list[UsageSample] = []
        self._each = 1

    def add(self, sample: UsageSample) -> None:
        self._pending.append(sample)
        if len(self._pending) < self._each:
            return
        self._kept.append(_merged(self._pending))
        self._pending = []
        if len(self._kept) == MAX_SAMPLES:
            pairs = zip(self._kept[::2], self._kept[1::2], strict=True)
            self._kept = [_merged(pair) for pair in pairs]
            self._each *= 2

    def samples(self) -> list[UsageSample]:
        kept = [*self._kept, *([_merged(self._pending)] if self._pending else [])]
        # The end of a run cuts an interval off: what was used in an instant is no rate.
        if len(kept) > 1 and kept[-1].interval_s < _STUB * kept[-2].interval_s:
            kept[-2:] = [_merged(kept[-2:])]
        return kept


def _merged(samples: list[UsageSample] | tuple[UsageSample, ...]) -> UsageSample:
    """Neighbours as one: rates are means, memory is the most; counts are those of the last."""
    whole_s = sum(one.interval_s for one in samples)
    shares = [one.gpu_share for one in samples if one.gpu_share is not None]
    return dataclasses.replace(
        samples[-1],
        interval_s=whole_s,
        cpu_cores=sum(one.cpu_cores * one.interval_s for one in samples) / whole_s,
        memory_bytes=_most([one.memory_bytes for one in samples]),
        gpu_share=sum(shares) / len(shares) if shares else None,
        gpu_memory_bytes=_most([one.gpu_memory_bytes for one in samples]),
    )


def _most(numbers: list[int | None]) -> int | None:
    return max((number for number in numbers if number is not None), default=None)
