"""Job: what a user asks for, before anything is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from reparto.spec._run import Options


@dataclass(frozen=True, kw_only=True)
class Job:
    """A script to train, and how the user wants that done.

    Attributes:
        script: Path of the script.
        args: The script's own arguments.
        workers: How many workers; None for as many as there are cores or GPUs.
        engine: Where workers run.
        address: Of the engine's cluster, if it has one.
        ship: Paths that travel to hosts that lack them.
        strategy: A strategy's kind; ``auto`` to measure first and take what is best.
        settings: The strategy's settings.
        threads: Threads of each worker; None to share out the cores.
        relaxed: Whether a strategy may change the mathematics.
        accelerate: Whether one worker makes the most of its device: ``on``, ``off``, or ``auto``,
            where there is one GPU and nothing is shared out.
        probe: Whether a shadow process checks the first step for equality.
        options: How workers run.
    """

    script: str
    args: tuple[str, ...] = ()
    workers: int | None = None
    engine: str = "local"
    address: str = ""
    ship: tuple[str, ...] = ()
    strategy: str = "all-reduce"
    settings: Mapping[str, Any] = field(default_factory=dict)
    threads: int | None = None
    relaxed: bool = False
    accelerate: Literal["auto", "on", "off"] = "off"
    probe: bool = True
    options: Options = field(default_factory=Options)
