"""Line, Host, Link and Cluster: where workers can run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Line:
    """What joins a host to the others.

    Attributes:
        up_bits_per_s: The most that leaves the host; None if nothing limits it.
        down_bits_per_s: The most that reaches it; None if nothing limits it.
        delay_s: Seconds that a packet from this host is on its way, besides.
        jitter_s: By how much that varies, up and down.
        loss: Share of the packets from this host that are lost, from 0 to below 1.
    """

    up_bits_per_s: float | None = None
    down_bits_per_s: float | None = None
    delay_s: float = 0.0
    jitter_s: float = 0.0
    loss: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Host:
    """A machine, or a namespace that plays one.

    Attributes:
        name: As shown to people.
        address: The address that peers use to reach it.
        num_cores: Cores that workers may use.
        num_gpus: GPUs that workers may use.
        memory_bytes: Main memory; 0 if unknown.
        enter: Command prefix that runs a command on this host (``ip netns exec a``); the lab
            and the engines meet here.
        line: What its workers' own groups emulate; None where the network is as it is.
    """

    name: str
    address: str = "127.0.0.1"
    num_cores: int = 1
    num_gpus: int = 0
    memory_bytes: int = 0
    enter: tuple[str, ...] = ()
    line: Line | None = None


@dataclass(frozen=True, kw_only=True)
class Link:
    """A measured or declared connection between two hosts."""

    source: str
    target: str
    rate_bits_per_s: float
    latency_s: float


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The hosts of a run and the links between them.

    Attributes:
        hosts: Where workers can run.
        links: Between hosts, where they are known.
        alike: Whether the hosts are only taken to be alike, because nobody has looked at all of
            them: each then runs as many workers as any other, one if not asked for more.
    """

    hosts: tuple[Host, ...]
    links: tuple[Link, ...] = ()
    alike: bool = False
