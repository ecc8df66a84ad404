"""Watch: whether the device was itself while it was timed, and what energy it took.

     begin ─────────── the work ─────────── end
GPU  clocks, reasons, energy                the same again: from the driver
CPU  a reference piece of work              the same again: slower after than before?
     energy (RAPL), time of all processes   the same again: was anyone else busy?
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from reparto.bench._guards import slowed
from reparto.bench._nvml import HOT, POWER, GpuState, Nvml
from reparto.spec import Flag

_RAPL = "sys/class/powercap"
_BUSY_CORES = 0.5  # of other processes: what is less changes no time
_STOLEN = 0.02  # of the time: what a hypervisor gave to others
_SHORT_S = 0.05  # the system counts time in hundredths of a second
_CLOCK_DROP = 0.85


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen of a device while it worked.

    Attributes:
        throttled: Whether it was slower than it can be.
        disturbed: Whether others used it meanwhile.
        notes: In words.
        energy_j: Over the whole time; None where nobody tells.
    """

    throttled: bool = False
    disturbed: bool = False
    notes: tuple[str, ...] = ()
    energy_j: float | None = None

    @property
    def flags(self) -> tuple[Flag, ...]:
        """What rows are to be marked with."""
        flags: list[Flag] = ["throttled"] if self.throttled else []
        return (*flags, "noisy") if self.disturbed else tuple(flags)


class GpuWatch:
    """Watches a GPU. Its work has to be waited for before `end`."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._first = GpuState()

    def begin(self) -> None:
        """The work is about to begin."""
        self._first = self._nvml.state()

    def end(self) -> Seen:
        """The work has ended, just now."""
        return judge_gpu(self._first, self._nvml.state())


class CpuWatch:
    """Watches this machine's processors.

    Args:
        root: Where ``/proc`` and ``/sys`` are.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._first = CpuState()

    def begin(self) -> None:
        """The work is about to begin."""
        reference_s = reference_work()
        self._first = self._state(reference_s)

    def end(self) -> Seen:
        """The work has ended, just now."""
        last = self._state(0.0)
        return judge_cpu(self._first, last, reference_work())

    def _state(self, reference_s: float) -> CpuState:
        busy_s, stolen_s = machine_seconds(self._root)
        return CpuState(
            reference_s=reference_s,
            time_s=time.monotonic(),
            own_s=sum(os.times()[:2]),
            busy_s=busy_s,
            stolen_s=stolen_s,
            energy_j=rapl_joules(self._root),
        )


@dataclass(frozen=True, kw_only=True)
class CpuState:
    """The processors at one moment; times since whenever."""

    reference_s: float = 0.0
    time_s: float = 0.0
    own_s: float = 0.0
    busy_s: float = 0.0
    stolen_s: float = 0.0
    energy_j: float | None = None


def judge_gpu(first: GpuState, last: GpuState) -> Seen:
    """What two states of a GPU say about the time between them."""
    notes, throttled = [], False
    reasons = last.reasons or 0
    clock, highest = last.clock_mhz, last.max_clock_mhz
    if reasons & HOT:
        throttled = True
        notes.append("the GPU slowed down: it was too hot, or its power supply said so")
    elif reasons & POWER and clock and highest:
        throttled = clock < _CLOCK_DROP * highest
        notes.append("the GPU was at its power limit")
    if clock and highest:
        notes.append(f"clock {clock} of {highest} MHz")
    energy = None
    if first.energy_j is not None and last.energy_j is not None:
        energy = last.energy_j - first.energy_j
    return Seen(throttled=throttled, notes=tuple(notes), energy_j=energy)


def judge_cpu(first: CpuState, last: CpuState, reference_s: float) -> Seen:
    """What two states of the processors say about the time between them.

    Args:
        first: Before the work.
        last: After it.
        reference_s: Of the reference piece of work, after it.
    """
    notes, throttled = [], slowed(first.reference_s, reference_s)
    disturbed = False
    if throttled:
        more = 100 * (reference_s / first.reference_s - 1)
        notes.append(f"the processor was {more:.0f} % slower after the work than before it")
    elapsed_s = last.time_s - first.time_s
    if elapsed_s > _SHORT_S:
        others = (last.busy_s - first.busy_s - last.own_s + first.own_s) / elapsed_s
        if others > _BUSY_CORES:
            disturbed = True
            notes.append(f"other processes used {others:.1f} cores meanwhile")
        if (last.stolen_s - first.stolen_s) / elapsed_s > _STOLEN:
            disturbed = True
            notes.append("the hypervisor gave processors to others meanwhile")
    energy = None
    if first.energy_j is not None and last.energy_j is not None:
        energy = last.energy_j - first.energy_j
        if energy < 0:  # the counter began anew
            energy = None
    return Seen(throttled=throttled, disturbed=disturbed, notes=tuple(notes), energy_j=energy)


def reference_work(times: int = 20) -> float:
    """Seconds of a fixed piece of work on one core, the least of some; each is short."""
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        total = 0
        for number in range(10_000):
            total += number * number
        best = min(best, time.perf_counter() - began)
    return best


def machine_seconds(root: Path) -> tuple[float, float]:
    """Processor time of all processes, and what was stolen; 0 where the system does not tell."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        line = (root / "proc/stat").read_text().partition("\n")[0].split()
        user, nice, system, _, _, irq, softirq, steal = map(int, line[1:9])
        tick = os.sysconf("SC_CLK_TCK")
        return (user + nice + system + irq + softirq) / tick, steal / tick
    return 0.0, 0.0


def rapl_joules(root: Path) -> float | None:
    """What all processor packages have used; None where nobody may read it."""
    found = []
    for package in sorted((root / _RAPL).glob("intel-rapl:*")):
        if package.name.count(":") == 1:  # others are parts of one
            with contextlib.suppress(OSError, ValueError):
                found.append(int((package / "energy_uj").read_text()) / 1e6)
    return sum(found) if found else None
