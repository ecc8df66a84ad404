"""FitScreen: what people see while a batch is fitted, on standard error."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from reparto.cli._fit_batch import size_text
from reparto.cli._progress import Progress
from reparto.cli._screen import Screen
from reparto.cli._style import duration
from reparto.spec import Begin, Event, FitPoint, Step
from reparto.sweep import FitWatcher, Spot

if TYPE_CHECKING:
    from reparto.convert import Result


class FitScreen(Screen, FitWatcher):
    """Tells of each run in one line. What the script prints, several times over, is left out.

    Args:
        json_target: As of `Screen`.
    """

    def __init__(self, json_target: str | None = None) -> None:
        super().__init__(json_target)
        self._place: tuple[str, str] = ("", "")
        self._what = ""

    def found(self, result: Result) -> None:
        """Say what is looked at; what the analysis found is not needed for one worker."""
        self._document |= {"script": result.program.script, "args": result.program.args}

    def tries(self, spot: Spot, rows: int | None, predicted_bytes: int) -> None:
        """Say which run comes; on another device, which one that is."""
        place = (spot.plan.device, spot.plan.placement[0])
        if place != self._place:
            self._place = place
            self._say(self._style("bold", f"{place[0]} of {place[1]}"))
        self._what = "as it is" if rows is None else f"{rows} rows"
        if predicted_bytes:
            self._what += f", {size_text(predicted_bytes)} predicted"
        self._progress = Progress(self._stdout, sys.stderr, self._what)

    def tried(self, point: FitPoint) -> None:
        """Say what came of it."""
        rows = f" ({point.rows} rows)" if self._what == "as it is" and point.rows else ""
        found = size_text(point.peak_bytes) if point.fits else self._style("yellow", "too much")
        self._say(f"  {self._what}{rows}: {found} · {duration(point.took_s)}")

    def event(self, event: Event) -> None:
        """Keep the live line going."""
        if isinstance(event, Begin):
            self._progress.begin()
        elif isinstance(event, Step):
            self._progress.step(event.record, 1)

    def clear(self) -> None:
        """Take the live line away."""
        self._progress.clear()
