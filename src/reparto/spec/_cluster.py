"""Host, Link and Cluster: where workers can run."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    name: str
    address: str = "127.0.0.1"
    num_cores: int = 1
    num_gpus: int = 0
    memory_bytes: int = 0
    enter: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Link:
    """A measured or declared connection between two hosts."""

    source: str
    target: str
    rate_bits_per_s: float
    latency_s: float


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The hosts of a run and the links between them."""

    hosts: tuple[Host, ...]
    links: tuple[Link, ...] = ()
