"""LabScreen: what people see while a lab is swept, on standard error."""

from __future__ import annotations

from reparto.cli._side_by_side import SideBySide
from reparto.cli._style import duration
from reparto.spec import LabCell
from reparto.sweep import SweepWatcher, cell_name


class LabScreen(SideBySide, SweepWatcher):
    """Shows which cell runs, how it goes, and how long the rest will take."""

    def kept(self, cell: LabCell) -> None:
        """Say that it need not be run again."""
        self._index += 1
        name = cell_name(cell.nodes, cell.rate_bits_per_s, cell.label)
        told = f"{self._index}/{self._num_runs} {name}"
        self._say(f"{self._style('bold', told)} · measured before")

    def left(self, num_cells: int, seconds: float) -> None:
        """Say how long the rest will take."""
        self._say(f"  {num_cells} left, about {duration(seconds)}")
