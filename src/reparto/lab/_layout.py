"""Layout: all that a lab is made of, decided before anything is done. Pure.

    namespace reparto-LAB.node-1          namespace reparto-LAB.node-2
      eth0 198.18.0.1                       eth0 198.18.0.2
       │ tbf: up                             │ tbf: up
       │ tbf: down                           │ tbf: down
    rpXXXXXXXX.0 ───────── bridge rpXXXXXXXX ───────── rpXXXXXXXX.1

Each host's workers start in its namespace and in control groups of its name. Where the kernel
builds no networks for this user, the same lines are emulated by the workers' own groups.
"""

from __future__ import annotations

import math
import shlex
import zlib
from dataclasses import dataclass, replace
from typing import Literal

from reparto.lab._machine import Machine
from reparto.spec import Cluster, Host, Lab, LabHost, Line

Command = tuple[str, ...]

PREFIX = "reparto-"
_PERIOD_US = 10_000
#: The kernel takes no quota below a millisecond.
_LEAST_QUOTA_US = 1_000


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What will be made, by which commands.

    Attributes:
        lab: What was asked for.
        kind: ``kernel``: namespaces and rate limits; ``emulated``: workers hold themselves back.
        up: Commands that make it, in order.
        down: Commands that take it away; each may find that there is nothing.
        cluster: The hosts, as engines want them.
        groups: Folders of their control groups.
        notes: What is not as it was asked for, or how it is done, in words.
    """

    lab: Lab
    kind: Literal["kernel", "emulated"]
    up: tuple[Command, ...] = ()
    down: tuple[Command, ...] = ()
    cluster: Cluster
    groups: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_text(self) -> str:
        """Show the commands, one a line."""
        return "\n".join(shlex.join(command) for command in self.up)

    def leaves(self) -> list[str]:
        """Paths that exist as long as it is not taken down."""
        if self.kind == "emulated":
            return []
        spaces = [f"/run/netns/{namespace(self.lab, host)}" for host in self.lab.hosts]
        return [*spaces, *self.groups, f"/sys/class/net/{bridge_name(self.lab)}"]


def lay_out(lab: Lab, machine: Machine, *, emulate: bool = False) -> Layout:
    """Decide how a lab is built here.

    Args:
        lab: What is asked for.
        machine: What there is.
        emulate: Leave the kernel out of it, also where it could.
    """
    if machine.lacks or emulate:
        return _emulated(lab, machine)
    bridge = bridge_name(lab)
    groups = [_Groups(lab, host, machine) for host in lab.hosts]
    up = [
        ("ip", "link", "add", bridge, "type", "bridge"),
        ("ip", "link", "set", bridge, "addrgenmode", "none", "up"),
        *_shared_controllers(machine),
    ]
    for index in range(len(lab.hosts)):
        up += [*_wired(lab, index), *_limited(lab, index, machine), *groups[index].made()]
    down: list[Command] = []
    for host, group in zip(lab.hosts, groups, strict=True):
        space = namespace(lab, host)
        kill = f"ip netns pids {space} 2>/dev/null | xargs -r kill -9"
        down += [("sh", "-c", kill), *group.removed(), ("ip", "netns", "del", space)]
    down += [("ip", "link", "del", f"{bridge}.{index}") for index in range(len(lab.hosts))]
    down.append(("ip", "link", "del", bridge))
    hosts = tuple(
        Host(
            name=host.name,
            address=address(index),
            num_cores=_cores(host, machine),
            memory_bytes=host.memory_bytes,
            enter=_enter(namespace(lab, host), group.folders),
            line=None if machine.netem else _rest(host.line),
        )
        for index, (host, group) in enumerate(zip(lab.hosts, groups, strict=True))
    )
    return Layout(
        lab=lab,
        kind="kernel",
        up=tuple(up),
        down=tuple(down),
        cluster=Cluster(hosts=hosts),
        groups=tuple(folder for group in groups for folder in group.folders),
        notes=_notes(lab, machine),
    )


def namespace(lab: Lab, host: LabHost) -> str:
    """The name of a host's network namespace."""
    return f"{PREFIX}{lab.name}.{host.name}"  # no name has a dot: no two are alike


def bridge_name(lab: Lab) -> str:
    """The name of a lab's bridge; the kernel allows 15 letters."""
    return f"rp{zlib.crc32(lab.name.encode()):08x}"


def address(index: int) -> str:
    """The address of a host: of a range that is kept for such tests (RFC 2544)."""
    return f"198.18.0.{index + 1}"


def enter_network(lab: Lab, host: LabHost) -> Command:
    """Command prefix that runs a command on a host's network, outside its limits."""
    return ("nsenter", f"--net=/run/netns/{namespace(lab, host)}", "--")


def _wired(lab: Lab, index: int) -> list[Command]:
    space, bridge = namespace(lab, lab.hosts[index]), bridge_name(lab)
    outer = f"{bridge}.{index}"
    inside = ("ip", "-n", space)
    return [
        ("ip", "netns", "add", space),
        ("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", space),
        ("ip", "link", "set", outer, "master", bridge, "addrgenmode", "none", "up"),
        (*inside, "address", "add", f"{address(index)}/24", "dev", "eth0"),
        (*inside, "link", "set", "lo", "up"),
        (*inside, "link", "set", "eth0", "addrgenmode", "none", "up"),
    ]


def _limited(lab: Lab, index: int, machine: Machine) -> list[Command]:
    """Rates each way; delay and loss of what the host sends."""
    host = lab.hosts[index]
    line, space = host.line, namespace(lab, host)
    inside = ("tc", "-n", space, "qdisc", "add", "dev", "eth0")
    found: list[Command] = []
    parent: Command = ("root",)
    if machine.netem and _rest(line) is not None:
        words = ["netem", "limit", "20000"]
        if line.delay_s:
            words += ["delay", f"{line.delay_s * 1e6:.0f}us", f"{line.jitter_s * 1e6:.0f}us"]
        if line.loss:
            words += ["loss", f"{100 * line.loss:g}%"]
        found.append((*inside, "root", "handle", "1:", *words))
        parent = ("parent", "1:1")
    narrow = _narrow(lab, index)
    if narrow:
        found += _classes(space, parent, line.up_bits_per_s, narrow)
    elif line.up_bits_per_s is not None:
        found.append((*inside, *parent, "handle", "10:", *_bucket(line.up_bits_per_s)))
    if line.down_bits_per_s is not None:
        outer = f"{bridge_name(lab)}.{index}"
        found.append(("tc", "qdisc", "add", "dev", outer, "root", *_bucket(line.down_bits_per_s)))
    return found


def _bucket(rate: float) -> Command:
    """A token bucket: what comes at once is a fiftieth of a second, and at least two packets."""
    burst = max(3_200, min(16_000, round(rate / 8 * 0.02)), round(rate / 8 * 0.002))
    return ("tbf", "rate", f"{rate:.0f}bit", "burst", f"{burst}", "latency", "50ms")


def _narrow(lab: Lab, index: int) -> dict[int, float]:
    """Rates to single peers, by their index."""
    names = [host.name for host in lab.hosts]
    found: dict[int, float] = {}
    for link in lab.links:
        ends = [names.index(name) for name in link.between]
        if index in ends:
            found[ends[1 - ends.index(index)]] = link.rate_bits_per_s
    return found


def _classes(
    space: str, parent: Command, up: float | None, narrow: dict[int, float]
) -> list[Command]:
    """htb: one class for the line, in it one for each peer with a rate of its own.

    What a class has for itself it may always send, so they have next to nothing and borrow of
    the line.
    """
    whole = f"{up if up is not None else 100e9:.0f}bit"
    own = "8kbit"
    tc = ("tc", "-n", space)
    add = (*tc, "class", "add", "dev", "eth0", "parent")
    found = [
        (*tc, "qdisc", "add", "dev", "eth0", *parent, "handle", "10:", "htb", "default", "1"),
        (*add, "10:", "classid", "10:fff", "htb", "rate", whole),
        (*add, "10:fff", "classid", "10:1", "htb", "rate", own, "ceil", whole),
    ]
    for peer, rate in narrow.items():
        name = f"10:{peer + 0x10:x}"
        limit = f"{rate:.0f}bit"
        found += [
            (*add, "10:fff", "classid", name, "htb", "rate", own, "ceil", limit),
            (*tc, "filter", "add", "dev", "eth0", "parent", "10:", "protocol", "ip", "u32",
             "match", "ip", "dst", f"{address(peer)}/32", "flowid", name),
        ]  # fmt: skip
    return found


class _Groups:
    """The control groups of a host: one in each hierarchy that counts or limits."""

    def __init__(self, lab: Lab, host: LabHost, machine: Machine) -> None:
        self._host, self._machine = host, machine
        parents = dict.fromkeys((*machine.cpu_folders, machine.memory_folder))
        name = namespace(lab, host)
        self._of = {parent: f"{parent}/{name}" for parent in parents if parent}
        self.folders = tuple(self._of.values())

    def made(self) -> list[Command]:
        found: list[Command] = [("mkdir", "-p", folder) for folder in self.folders]
        if self._host.cpu is not None and self._machine.cgroups:
            period, quota = quota_of(self._host.cpu)
            folder = self._of[self._machine.cpu_folders[0]]
            if self._machine.cgroups == 1:
                found += [
                    _written(f"{folder}/cpu.cfs_period_us", str(period)),
                    _written(f"{folder}/cpu.cfs_quota_us", str(quota)),
                ]
            else:
                found.append(_written(f"{folder}/cpu.max", f"{quota} {period}"))
        if self._host.memory_bytes and self._machine.memory_folder:
            folder = self._of[self._machine.memory_folder]
            name = "memory.limit_in_bytes" if self._machine.cgroups == 1 else "memory.max"
            found.append(_written(f"{folder}/{name}", str(self._host.memory_bytes)))
        return found

    def removed(self) -> list[Command]:
        """Kill and remove until nothing is left: who has little CPU takes a while to die."""
        kill = "; ".join(f"xargs -r kill -9 < {one}/cgroup.procs" for one in self.folders)
        wait = " || ".join(f"[ -d {one} ]" for one in self.folders)
        again = f"for i in $(seq 100); do {kill}; rmdir {' '.join(self.folders)}; {wait} || "
        text = f"({again}exit 0; sleep 0.1; done) 2>/dev/null"
        return [("sh", "-c", text)] if self.folders else []


def quota_of(cpu: float) -> tuple[int, int]:
    """Period and quota in microseconds: short, so that a step does not fall between two.

    Example:
        >>> quota_of(0.45), quota_of(0.05)
        ((10000, 4500), (20000, 1000))
    """
    period = max(_PERIOD_US, math.ceil(_LEAST_QUOTA_US / cpu))
    return period, round(cpu * period)


def _shared_controllers(machine: Machine) -> list[Command]:
    """Version 2 hands controllers down only when it is told to."""
    if machine.cgroups != 2:
        return []
    return [_written(f"{machine.cpu_folders[0]}/cgroup.subtree_control", "+cpu +memory")]


def _written(path: str, text: str) -> Command:
    return ("sh", "-c", f"echo {text} > {path}")


def _enter(space: str, folders: tuple[str, ...]) -> Command:
    """Join the control groups, then the network; the process stays the one that was started."""
    joins = "".join(f"echo $$ > {folder}/cgroup.procs && " for folder in folders)
    return ("sh", "-c", f'{joins}exec nsenter --net=/run/netns/{space} -- "$@"', "reparto-lab")


def _rest(line: Line) -> Line | None:
    """What is left to emulate where the kernel limits rates but has no netem."""
    rest = replace(line, up_bits_per_s=None, down_bits_per_s=None)
    return rest if rest != Line() else None


def _cores(host: LabHost, machine: Machine) -> int:
    return machine.num_cores if host.cpu is None else max(1, math.ceil(host.cpu))


def _emulated(lab: Lab, machine: Machine) -> Layout:
    hosts = tuple(
        Host(name=host.name, num_cores=_cores(host, machine), line=host.line) for host in lab.hosts
    )
    why = machine.lacks or "--emulate"
    notes = [f"lines are emulated by the workers' own groups: {why}"]
    if any(host.cpu is not None for host in lab.hosts):
        notes.append("CPU shares are not limited: that needs root and Linux's control groups")
    if any(host.memory_bytes for host in lab.hosts):
        notes.append("memory is not limited: that needs root and Linux's control groups")
    if lab.links:
        notes.append("links between two hosts are not emulated: that needs root and Linux")
    return Layout(lab=lab, kind="emulated", cluster=Cluster(hosts=hosts), notes=tuple(notes))


def _notes(lab: Lab, machine: Machine) -> tuple[str, ...]:
    notes = []
    if not machine.netem and any(_rest(host.line) is not None for host in lab.hosts):
        notes.append(
            "this kernel has no netem: delay and loss are emulated by the workers' own groups"
        )
    asked = sum(host.cpu or 1.0 for host in lab.hosts)
    if asked > machine.num_cores:
        notes.append(
            f"{len(lab.hosts)} hosts want {asked:g} cores, and there are {machine.num_cores}: "
            "they take turns, and a further host adds nothing; give each a share (--cpu)"
        )
    if not machine.cgroups and any(host.cpu is not None for host in lab.hosts):
        notes.append("CPU shares are not limited: there are no control groups")
    if not machine.memory_folder and any(host.memory_bytes for host in lab.hosts):
        notes.append("memory is not limited: there are no control groups for it")
    return tuple(notes)
