"""Measures a lab: is each line, and each host's share of CPU, what it was set to?

    line up of a      a ──────► whoever receives most     the least on the way is expected
    line down of a    a ◄────── whoever sends most

A stream's payload is counted where it arrives and told as bytes on the wire, which is what rate
limits count: 1514 bytes a packet of 1448. Streams run outside the hosts' CPU limits.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from reparto.errors import LabError
from reparto.lab._layout import Command, Layout, address, enter_network
from reparto.spec import Lab, LabHost, Line

#: A line is off if it differs by more than that.
TOLERANCE = 0.05
WIRE_OVER_PAYLOAD = 1514 / 1448

_PORT = 20_117
_STREAM_S = 1.5
#: A line that seems off is measured again for so long: TCP may still have been learning.
_LONG_S = 6.0
_CPU_S = 2.0
_BUSY = "import time; e = time.monotonic() + {s}\nwhile time.monotonic() < e: pass"
_COUNTED = (
    "import json, os, subprocess, sys, time; t = time.perf_counter()\n"
    "busy = [sys.executable, '-I', '-c', sys.argv[1]]\n"
    "for one in [subprocess.Popen(busy) for _ in range(int(sys.argv[2]))]: one.wait()\n"
    "e = os.times()\n"
    "print(json.dumps((e.children_user + e.children_system) / (time.perf_counter() - t)))"
)

Way = Literal["up", "down"]


@dataclass(frozen=True, kw_only=True)
class LineCheck:
    """A line, one way.

    Attributes:
        host: Whose.
        way: Up or down.
        set_bits_per_s: The least limit on the way that was measured; None if there is none.
        measured_bits_per_s: By the stream, in bytes on the wire.
        iperf_bits_per_s: By iperf3, likewise; None if it is not installed.
    """

    host: str
    way: Way
    set_bits_per_s: float | None
    measured_bits_per_s: float
    iperf_bits_per_s: float | None = None

    @property
    def off(self) -> float | None:
        """By which share it differs; None if nothing was set."""
        if self.set_bits_per_s is None:
            return None
        return self.measured_bits_per_s / self.set_bits_per_s - 1

    @property
    def is_off(self) -> bool:
        """Whether it is not what it was set to."""
        return self.off is not None and abs(self.off) > TOLERANCE


@dataclass(frozen=True, kw_only=True)
class CpuCheck:
    """A host's share of CPU, while all hosts are busy.

    Attributes:
        host: Whose.
        set_cores: Cores' worth; None if nothing was set.
        measured_cores: Cores' worth that a busy loop got.
    """

    host: str
    set_cores: float | None
    measured_cores: float


@dataclass(frozen=True, kw_only=True)
class DelayCheck:
    """The way there and back between two hosts.

    Attributes:
        between: The two.
        set_s: What was set, both ways together.
        measured_s: The quickest of some round trips.
    """

    between: tuple[str, str]
    set_s: float
    measured_s: float


@dataclass(frozen=True, kw_only=True)
class LabCheck:
    """What was found.

    Attributes:
        kind: Of the layout: ``kernel`` or ``emulated``.
        lines: Each line, each way.
        cpus: Each host's share.
        delays: Where a delay was set and packets have it.
    """

    kind: Literal["kernel", "emulated"]
    lines: tuple[LineCheck, ...] = ()
    cpus: tuple[CpuCheck, ...] = ()
    delays: tuple[DelayCheck, ...] = field(default_factory=tuple)

    @property
    def is_good(self) -> bool:
        """Whether every line is what it was set to."""
        return not any(line.is_off for line in self.lines)


def check(layout: Layout, on_progress: Callable[[str], None] | None = None) -> LabCheck:
    """Measure a lab that stands.

    Args:
        layout: The lab.
        on_progress: Is told what is measured next.

    Raises:
        LabError: If hosts do not reach each other.
    """
    tell = on_progress or (lambda _: None)
    if layout.kind == "emulated":
        return _check_emulated(layout, tell)
    lab = layout.lab
    lines = []
    for index, host in enumerate(lab.hosts) if len(lab.hosts) > 1 else ():
        for way in _WAYS:
            tell(f"line {way} of {host.name}")
            lines.append(_line(lab, index, way))
    tell("CPU of every host")
    cpus = _cpus(layout)
    delays = []
    if len(lab.hosts) > 1 and layout.cluster.hosts[0].line is None:
        one, two = lab.hosts[:2]
        both = one.line.delay_s + two.line.delay_s
        if both:
            tell("delay")
            found = _round_trip(lab, 0, 1)
            delays.append(DelayCheck(between=(one.name, two.name), set_s=both, measured_s=found))
    return LabCheck(kind="kernel", lines=tuple(lines), cpus=cpus, delays=tuple(delays))


_WAYS: tuple[Way, ...] = ("up", "down")


def way_of(lab: Lab, index: int, way: Way) -> tuple[int, int, float | None]:
    """Who sends, who receives, and the least limit between them. Pure.

    The partner is the one that holds a stream back least.
    """
    others = [other for other in range(len(lab.hosts)) if other != index]

    def limit(other: int) -> float:
        ends = (index, other) if way == "up" else (other, index)
        found = _limits(lab, *ends)
        return min(found) if found else float("inf")

    partner = max(others, key=limit)
    sender, receiver = (index, partner) if way == "up" else (partner, index)
    least = _limits(lab, sender, receiver)
    return sender, receiver, min(least) if least else None


def _limits(lab: Lab, sender: int, receiver: int) -> list[float]:
    one, two = lab.hosts[sender], lab.hosts[receiver]
    narrow = [
        link.rate_bits_per_s for link in lab.links if set(link.between) == {one.name, two.name}
    ]
    found = [one.line.up_bits_per_s, two.line.down_bits_per_s, *narrow]
    return [rate for rate in found if rate is not None]


def _line(lab: Lab, index: int, way: Way) -> LineCheck:
    sender, receiver, least = way_of(lab, index, way)
    found = LineCheck(
        host=lab.hosts[index].name,
        way=way,
        set_bits_per_s=least,
        measured_bits_per_s=_streamed(lab, sender, receiver, _STREAM_S),
        iperf_bits_per_s=_iperf(lab, sender, receiver) if shutil.which("iperf3") else None,
    )
    if found.is_off:
        again = _streamed(lab, sender, receiver, _LONG_S)
        found = replace(found, measured_bits_per_s=again)
    return found


def _streamed(lab: Lab, sender: int, receiver: int, seconds: float) -> float:
    target = address(receiver)
    with _running(_enter(lab, receiver, "receive", target, str(_PORT))) as taking:
        _first_line(taking, lab, sender, receiver)
        sending = _enter(lab, sender, "send", target, str(_PORT), str(seconds))
        done = subprocess.run(sending, capture_output=True, text=True, check=False)
        if done.returncode:
            raise _unreachable(lab, sender, receiver, done.stderr)
        found = json.loads(taking.communicate(timeout=60)[0])
    return float(8 * found["bytes"] * WIRE_OVER_PAYLOAD / max(found["seconds"], 1e-9))


def _round_trip(lab: Lab, one: int, two: int) -> float:
    with _running(_enter(lab, two, "echo", address(two), str(_PORT))) as answering:
        _first_line(answering, lab, one, two)
        asking = _enter(lab, one, "ask", address(two), str(_PORT), "5")
        done = subprocess.run(asking, capture_output=True, text=True, check=False)
        if done.returncode:
            raise _unreachable(lab, one, two, done.stderr)
    return float(json.loads(done.stdout)["seconds"])


def _iperf(lab: Lab, sender: int, receiver: int) -> float | None:
    target = address(receiver)
    prefix = enter_network(lab, lab.hosts[receiver])
    serve = (*prefix, "iperf3", "-s", "-1", "-B", target, "-p", str(_PORT + 1), "--forceflush")
    with _running(serve) as server:
        _first_line(server, lab, sender, receiver)
        asking = (*enter_network(lab, lab.hosts[sender]), "iperf3", "-c", target, "-J",
                  "-p", str(_PORT + 1), "-t", "2", "-O", "1")  # fmt: skip
        done = subprocess.run(asking, capture_output=True, text=True, check=False)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(5)
    with contextlib.suppress(ValueError, KeyError):
        end = json.loads(done.stdout)["end"]
        return float(end["sum_received"]["bits_per_second"] * WIRE_OVER_PAYLOAD)
    return None


def _cpus(layout: Layout) -> tuple[CpuCheck, ...]:
    """All hosts are kept busy at once: that is how they will be."""
    command = (sys.executable, "-I", "-c", _COUNTED, _BUSY.format(s=_CPU_S))
    running = [
        subprocess.Popen(
            (*host.enter, *command, str(host.num_cores)), stdout=subprocess.PIPE, text=True
        )
        for host in layout.cluster.hosts
    ]
    told = [one.communicate()[0] for one in running]
    return tuple(
        CpuCheck(host=host.name, set_cores=host.cpu, measured_cores=float(json.loads(found)))
        for host, found in zip(layout.lab.hosts, told, strict=True)
    )


def _check_emulated(layout: Layout, tell: Callable[[str], None]) -> LabCheck:
    """Through the same group that workers use, between two threads of this process."""
    lab = layout.lab
    lines = []
    for index, host in enumerate(lab.hosts) if len(lab.hosts) > 1 else ():
        for way in _WAYS:
            tell(f"line {way} of {host.name}")
            sender, receiver, least = way_of(lab, index, way)
            measured = _emulated_rate(lab.hosts[sender].line, lab.hosts[receiver].line, least)
            lines.append(
                LineCheck(
                    host=host.name, way=way, set_bits_per_s=least, measured_bits_per_s=measured
                )
            )
    return LabCheck(kind="emulated", lines=tuple(lines))


def _emulated_rate(sender: Line, receiver: Line, least: float | None) -> float:
    """Bits a second of a message that takes about half a second."""
    from concurrent.futures import ThreadPoolExecutor

    import torch

    from reparto.comm import Meeting, ThreadGroup, ThrottledGroup, Wire

    size = 1 << 24 if least is None else max(1 << 12, min(1 << 24, int(least / 8 * 0.5)))
    meeting = Meeting(2)
    lines = (sender, receiver)

    def member(rank: int) -> float:
        group = ThrottledGroup(ThreadGroup(meeting, rank), Wire(lines[rank]))
        payload = torch.zeros(size, dtype=torch.uint8)
        group.barrier().wait()
        began = time.perf_counter()
        if rank == 0:
            group.send([payload], 1, 0).wait()
        else:
            group.recv([payload], 0, 0).wait()
        return time.perf_counter() - began

    with ThreadPoolExecutor(2) as pool:
        seconds = max(pool.map(member, range(2)))
    return 8 * size / max(seconds - sender.delay_s, 1e-9)


def _enter(lab: Lab, index: int, *words: str) -> Command:
    python = (sys.executable, "-P", "-m", "reparto.lab._stream")
    return (*enter_network(lab, lab.hosts[index]), *python, *words)


@contextlib.contextmanager
def _running(command: Command) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _first_line(process: subprocess.Popen[Any], lab: Lab, sender: int, receiver: int) -> None:
    """Wait until it says that it listens."""
    assert process.stdout is not None and process.stderr is not None
    if not process.stdout.readline():
        raise _unreachable(lab, sender, receiver, process.stderr.read())


def _unreachable(lab: Lab, sender: int, receiver: int, told: str) -> LabError:
    one, two = _named(lab.hosts, sender), _named(lab.hosts, receiver)
    reason = (told.strip().splitlines() or ["no reason told"])[-1]
    return LabError(
        f"no stream from {one} to {two}: {reason}",
        remedy="a firewall that filters bridges (br_netfilter) may hold it back",
    )


def _named(hosts: tuple[LabHost, ...], index: int) -> str:
    return f"{hosts[index].name} ({address(index)})"
