"""LabCell and LabSweep: one script on labs of several sizes and rates, as it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from reparto.spec._comparison import ComparedRun
from reparto.spec._usage import Recording


@dataclass(frozen=True, kw_only=True)
class LabCell:
    """One run on one lab.

    Attributes:
        nodes: Hosts.
        rate_bits_per_s: Of each host's line, each way; None where nothing limits it.
        label: The strategy, as tables and plots name it; ``single`` for one node.
        run: What was measured.
        usage: What the hosts were busy with; None if nobody told.
        is_late: Whether it was ended because it took too long.
    """

    nodes: int
    rate_bits_per_s: float | None
    label: str
    run: ComparedRun
    usage: Recording | None = None
    is_late: bool = False

    def seconds(self, target: float | None) -> float | None:
        """Seconds of training to the target, or in all; None if it was not reached."""
        run = self.run
        if target is not None:
            return run.time_to(run.reached) if run.reached is not None else None
        return run.training_s if run.result.status == "done" and not self.is_late else None


@dataclass(frozen=True, kw_only=True)
class LabSweep:
    """One script on labs of several sizes and rates.

    Attributes:
        script: Path of the script.
        args: Its own arguments.
        seed: Of every run.
        target: The loss that runs were to reach, if any.
        samples: After how many samples runs were to end, if that was asked for.
        kind: ``kernel``: namespaces and rate limits; ``emulated``: workers held themselves back.
        limits: What held for every host besides the rate, in words.
        notes: What is not as it was asked for, in words.
        environment: Where it was measured, in words.
        cells: In the order in which they were run; the first is the one with one node.
    """

    script: str
    args: tuple[str, ...] = ()
    seed: int = 0
    target: float | None = None
    samples: int | None = None
    kind: Literal["kernel", "emulated"] = "kernel"
    limits: str = ""
    notes: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    cells: tuple[LabCell, ...] = ()

    @property
    def rates(self) -> tuple[float | None, ...]:
        """Of the labs with several nodes, the fastest first; what is not limited is faster."""
        found = {cell.rate_bits_per_s for cell in self.cells if cell.nodes > 1}
        return tuple(sorted(found, key=lambda rate: -(rate or float("inf"))))

    @property
    def labels(self) -> tuple[str, ...]:
        """The strategies of several nodes."""
        return tuple(dict.fromkeys(cell.label for cell in self.cells if cell.nodes > 1))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of nodes, in order."""
        return tuple(sorted({cell.nodes for cell in self.cells}))

    def cell(self, nodes: int, rate: float | None, label: str) -> LabCell | None:
        """What was measured there; with one node neither rate nor strategy matters."""
        for cell in self.cells:
            if cell.nodes == nodes and (
                nodes == 1 or (cell.rate_bits_per_s == rate and cell.label == label)
            ):
                return cell
        return None

    def seconds(self, nodes: int, rate: float | None, label: str) -> float | None:
        """Seconds of training there, to the target or in all."""
        cell = self.cell(nodes, rate, label)
        return cell.seconds(self.target) if cell is not None else None

    def speed_up(self, nodes: int, rate: float | None, label: str) -> float | None:
        """Over one node; None where either did not get there."""
        alone = self.seconds(1, None, label)
        found = self.seconds(nodes, rate, label)
        return alone / found if alone is not None and found else None
