"""SideBySide: what people see while strategies are compared, on standard error."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from reparto.cli._progress import Progress
from reparto.cli._screen import Screen, describe_plan
from reparto.cli._style import duration
from reparto.spec import ComparedRun, Event, Output, Plan
from reparto.sweep import Entry, Watcher, ending


class SideBySide(Screen, Watcher):
    """Shows which strategy runs and how it goes. What the script prints goes into files.

    Args:
        num_runs: How many strategies there are.
        output: Folder for what the scripts print.
        json_target: As of `Screen`.
    """

    def __init__(self, num_runs: int, output: Path, json_target: str | None = None) -> None:
        super().__init__(json_target)
        self._num_runs, self._output = num_runs, output
        self._index = 0
        self._log = output

    def begins(self, entry: Entry, plan: Plan) -> None:
        """Say which one, and start a line of its own."""
        self._index += 1
        title = f"{self._index}/{self._num_runs} {entry.label}"
        self._num_workers = plan.num_workers
        where = describe_plan(plan).partition(" · ")[2]  # the title names the strategy
        self._say(f"{self._style('bold', title)} · {where}")
        self._progress = Progress(self._stdout, sys.stderr, title)
        self._output.mkdir(exist_ok=True)
        self._log = self._output / f"{self._index:02}-{_slug(entry.label)}.txt"
        self._log.write_bytes(b"")

    def event(self, event: Event) -> None:
        """Keep what the script prints; show the rest."""
        if isinstance(event, Output):
            with self._log.open("ab") as log:
                log.write(event.data)
        else:
            super().event(event)

    def ended(self, run: ComparedRun) -> None:
        """Say how it ended."""
        if run.result.failure is not None:
            self._failure(run.result.failure, run.result.num_workers)
            return
        last = run.last
        told = [ending(run), f"{duration(run.result.total_s)} with start-up"]
        if last is not None:
            told.append(f"{last.step} steps")
            told += [f"loss {last.trend:.4g}"] if last.trend is not None else []
        colour = "yellow" if run.status == "stopped" else "green"
        self._say(f"  {self._style(colour, told[0])} · {' · '.join(told[1:])}")


def _slug(label: str) -> str:
    return re.sub(r"[^\w.=-]+", "-", label).strip("-")
