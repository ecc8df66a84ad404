"""Traces of an evaluation: one a model, device and precision, at its largest batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from reparto.bench import _script
from reparto.bench._cells import Cell
from reparto.bench._crew import Crew

_LIMIT_S = 300.0
_SAID = 200
WORDS = "words.json"


def traced_cells(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Which of them are traced: training in one worker, the largest batch."""
    best: dict[tuple[str, str, str, str], Cell] = {}
    for cell in cells:
        key = (cell.suite, cell.model, cell.device, cell.dtype)
        if cell.mode == "train" and cell.strategy == "single" and cell.form == "plain":
            best[key] = max(best.get(key, cell), cell, key=lambda one: one.batch_rows)
    return tuple(best.values())


def trace_all(cells: Iterable[Cell], folder: Path, crew: Crew) -> dict[str, tuple[str, ...]]:
    """Trace them.

    Returns:
        By the cell's title, in words which operations took the time, and where the trace is.
    """
    told = {}
    for cell in traced_cells(cells):
        into = folder / slug(cell)
        into.mkdir(parents=True, exist_ok=True)
        words = _of_script(cell, into) if cell.by_script else crew.trace(cell, into)
        is_there = any(into.glob("*.trace.json"))
        told[cell.title] = (*words, *([f"the trace is in {into}"] if is_there else []))
    return told


def slug(cell: Cell) -> str:
    """The folder of a cell."""
    rows = [f"b{cell.batch_rows}"] if cell.batch_rows else []
    told = "-".join([cell.suite, cell.model, cell.device, cell.dtype, *rows])
    return "-".join("".join(c if c.isalnum() or c in "._=" else " " for c in told).split())


def _of_script(cell: Cell, folder: Path) -> tuple[str, ...]:
    command = [sys.executable, "-P", "-m", "reparto.bench._inside", str(folder.absolute())]
    with _script.visible(cell.device):
        try:
            done = subprocess.run(
                [*command, cell.where, *cell.args],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_LIMIT_S,
                env=dict(os.environ),
            )
        except subprocess.TimeoutExpired:
            return (f"the script made too few steps in {_LIMIT_S:g} s to be traced",)
    try:
        return tuple(json.loads((folder / WORDS).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return (f"it could not be traced: {last[:_SAID]}",)
