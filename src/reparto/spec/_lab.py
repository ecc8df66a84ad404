"""LabHost and Lab: machines and a network that one machine plays."""

from __future__ import annotations

from dataclasses import dataclass, field

from reparto.spec._cluster import Line


@dataclass(frozen=True, kw_only=True)
class LabHost:
    """A machine that is played.

    Attributes:
        name: As shown to people.
        line: What joins it to the others.
        cpu: Cores' worth of time that it has; None if nothing limits it.
        memory_bytes: Main memory; 0 if nothing limits it.
    """

    name: str
    line: Line = field(default_factory=Line)
    cpu: float | None = None
    memory_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Lab:
    """Hosts, all joined by one switch.

    Attributes:
        name: Labs of different names stand side by side.
        hosts: The machines.
    """

    name: str
    hosts: tuple[LabHost, ...]
