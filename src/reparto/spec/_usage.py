"""UsageSample, Recording and HostUsage: what the hosts of a run were busy with, over time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Beside the loopback, other interfaces that carry less than this share have stray packets only.
STRAY = 0.02


@dataclass(frozen=True, kw_only=True)
class UsageSample:
    """What a host has used in one interval; None where that is not known there.

    Attributes:
        time_s: When the interval ended: of an event, in seconds since the epoch; in a recording,
            in seconds since the script began, by one clock for all hosts.
        interval_s: How long it was.
        cpu_cores: Cores' worth of time that were used in it.
        cpu_limit_cores: Cores' worth of time that the host has.
        memory_bytes: Memory in use, without what can be given back at once (caches of files).
        memory_limit_bytes: Memory that the host has.
        gpu_share: How busy its GPUs were, from 0 to 1; mean over GPUs.
        gpu_memory_bytes: Memory in use on all of its GPUs.
        gpu_memory_limit_bytes: Memory of all of its GPUs.
        sent_bytes: What has left it since the first interval began.
        received_bytes: What has reached it since then.
        loopback_bytes: What processes of this host have sent to one another since then.
    """

    time_s: float
    interval_s: float
    cpu_cores: float
    cpu_limit_cores: float
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    gpu_share: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_memory_limit_bytes: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None
    loopback_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class HostUsage:
    """What a host has used in a whole run; None where that is not known.

    Attributes:
        host: Its name.
        mean_cpu_cores: Cores' worth of time, over the run.
        peak_cpu_cores: The most of an interval.
        cpu_limit_cores: What it has.
        peak_memory_bytes: The most that was in use at the end of an interval.
        memory_limit_bytes: What it has.
        mean_gpu_share: How busy its GPUs were, from 0 to 1.
        peak_gpu_memory_bytes: The most of an interval, on all of its GPUs.
        sent_bytes: In all.
        received_bytes: In all.
        over_loopback: Whether these are what its processes sent to one another.
    """

    host: str
    mean_cpu_cores: float
    peak_cpu_cores: float
    cpu_limit_cores: float
    peak_memory_bytes: int | None
    memory_limit_bytes: int | None
    mean_gpu_share: float | None
    peak_gpu_memory_bytes: int | None
    sent_bytes: int | None
    received_bytes: int | None
    over_loopback: bool


@dataclass(frozen=True, kw_only=True)
class Recording:
    """What the hosts of a run were busy with.

    Attributes:
        began_s: When the script began, in seconds since the epoch.
        hosts: By name, what each one told, in the order of time.
    """

    began_s: float
    hosts: Mapping[str, tuple[UsageSample, ...]]

    @property
    def over_loopback(self) -> bool:
        """Whether the workers' network is the loopback: one machine, however many it plays."""
        ends = [samples[-1] for samples in self.hosts.values() if samples]
        inside = sum(end.loopback_bytes or 0 for end in ends)
        outside = sum((end.sent_bytes or 0) + (end.received_bytes or 0) for end in ends)
        return outside < (inside if len(ends) == 1 else STRAY * inside)

    def traffic(self, sample: UsageSample) -> tuple[int | None, int | None]:
        """Bytes sent and received: over the loopback where that is the workers' network."""
        if self.over_loopback:
            return sample.loopback_bytes, sample.loopback_bytes
        return sample.sent_bytes, sample.received_bytes

    def summary(self) -> tuple[HostUsage, ...]:
        """What each host has used in all."""
        return tuple(self._of(host, samples) for host, samples in self.hosts.items() if samples)

    def _of(self, host: str, samples: tuple[UsageSample, ...]) -> HostUsage:
        last = samples[-1]
        sent, received = self.traffic(last)
        used_s = sum(one.cpu_cores * one.interval_s for one in samples)
        memory = [one.memory_bytes for one in samples if one.memory_bytes is not None]
        shares = [one.gpu_share for one in samples if one.gpu_share is not None]
        gpu_memory = [one.gpu_memory_bytes for one in samples if one.gpu_memory_bytes is not None]
        return HostUsage(
            host=host,
            mean_cpu_cores=used_s / (sum(one.interval_s for one in samples) or 1.0),
            peak_cpu_cores=max(one.cpu_cores for one in samples),
            cpu_limit_cores=last.cpu_limit_cores,
            peak_memory_bytes=max(memory, default=None),
            memory_limit_bytes=last.memory_limit_bytes,
            mean_gpu_share=sum(shares) / len(shares) if shares else None,
            peak_gpu_memory_bytes=max(gpu_memory, default=None),
            sent_bytes=sent,
            received_bytes=received,
            over_loopback=self.over_loopback,
        )
