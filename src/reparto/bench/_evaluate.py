"""Measures every cell that is not measured yet, and keeps each row as it is made."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from reparto.bench import _script
from reparto.bench._cells import Cell, Request, planned_cells
from reparto.bench._crew import Crew
from reparto.bench._environment import environment_of
from reparto.bench._guards import guarded
from reparto.bench._store import Store, changes, digest_of
from reparto.bench._traces import trace_all
from reparto.spec import BenchReport, Measurement


class Watcher:
    """Is told what happens. Does nothing; override what you want to see."""

    def begins(self, cell: Cell, number: int, planned: int) -> None:
        """A cell is about to be measured."""

    def ended(self, row: Measurement, left_s: float | None) -> None:
        """It was measured; so many seconds are left, if that can be told."""

    def kept(self, count: int) -> None:
        """So many cells were measured by an earlier call."""

    def remark(self, text: str) -> None:
        """Something that people should know."""


def evaluate(
    request: Request, folder: Path, watcher: Watcher | None = None, trace: Path | None = None
) -> BenchReport:
    """Measure what a request asks for.

    Args:
        request: What is to be measured.
        folder: Where rows are kept; a second call into it goes on.
        watcher: Is told what happens.
        trace: Where a step of each model is traced; None for nowhere.

    Returns:
        All rows of the request that are there: of this call and of earlier ones.

    Raises:
        UsageError: If the request contradicts itself, or nothing can be written there.
    """
    watcher = watcher or Watcher()
    began = time.monotonic()
    cells = planned_cells(request)
    store = Store(folder)
    environment = environment_of(request.devices)
    _tell_changes(store, environment, watcher)
    rest = [cell for cell in cells if store.row(cell.key) is None]
    if len(rest) < len(cells):
        watcher.kept(len(cells) - len(rest))
    rest = rest if request.limit is None else rest[: request.limit]
    clock = _Clock()
    before = store.environment()
    known = before if digest_of(before) == digest_of(environment) else {}
    with (
        closing(Crew(folder)) as crew,
        closing(_script.Scripts(before.get("steps", {}))) as scripts,
    ):
        crew.peaks |= known.get("peaks", {})
        try:
            for number, cell in enumerate(rest):
                watcher.begins(cell, number + 1, len(rest))
                one_began = time.monotonic()
                row = scripts.measure(cell) if cell.by_script else crew.measure(cell)
                clock.took(cell, time.monotonic() - one_began)
                store.add(cell.key, row, environment)
                watcher.ended(row, clock.left(rest[number + 1 :]))
            traces = trace_all(cells, trace, crew) if trace is not None else {}
        finally:
            environment |= {"peaks": crew.peaks, "steps": scripts.steps}
            store.keep_environment(environment)
    latest = [one for cell in cells if (one := store.latest(cell.key)) is not None]
    return BenchReport(
        environment=environment,
        measurements=guarded(_script.completed(latest)),
        planned=len(cells),
        traces=traces,
        took_s=time.monotonic() - began,
    )


def _tell_changes(store: Store, environment: dict[str, object], watcher: Watcher) -> None:
    others = store.of_elsewhere(environment)
    if others:
        told = "; ".join(changes(store.environment(), environment)) or "see environment.json"
        watcher.remark(
            f"{others} rows were made in another environment ({told}); "
            "another --out measures all of them anew"
        )


class _Clock:
    """Guesses how long what is left will take: like cells take like times."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, ...], list[float]] = defaultdict(list)

    def took(self, cell: Cell, seconds: float) -> None:
        for kind in (_kind(cell), ()):
            self._times[kind].append(seconds)

    def left(self, cells: Sequence[Cell]) -> float | None:
        if not self._times[()]:
            return None
        return sum(self._mean(_kind(cell)) for cell in cells)

    def _mean(self, kind: tuple[str, ...]) -> float:
        times = self._times.get(kind) or self._times[()]
        return sum(times) / len(times)


def _kind(cell: Cell) -> tuple[str, ...]:
    return cell.device, cell.mode, cell.form, cell.strategy
