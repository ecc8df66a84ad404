"""LabHost, LabLink and Lab: machines and a network that one machine plays."""

from __future__ import annotations

from dataclasses import dataclass, field

from reparto.spec._cluster import Line


@dataclass(frozen=True, kw_only=True)
class LabHost:
    """A machine that is played.

    Attributes:
        name: As shown to people; letters, digits and hyphens.
        line: What joins it to the switch.
        cpu: Cores' worth of time that it has; None if nothing limits it.
        memory_bytes: Main memory; 0 if nothing limits it.
    """

    name: str
    line: Line = field(default_factory=Line)
    cpu: float | None = None
    memory_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class LabLink:
    """A way between two hosts that is narrower than their own lines.

    Attributes:
        between: The two.
        rate_bits_per_s: The most that it carries, each way.
    """

    between: tuple[str, str]
    rate_bits_per_s: float


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Hosts, all joined by one switch.

    Attributes:
        name: Labs of different names stand side by side; letters, digits and hyphens.
        hosts: The machines.
        links: Ways between two of them that are narrower than their lines.
    """

    name: str
    hosts: tuple[LabHost, ...]
    links: tuple[LabLink, ...] = ()
