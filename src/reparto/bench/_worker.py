r"""The process that measures: a cell a line comes in, a row a line goes out.

    parent ──{"cell": …, "peak": …}\n──► │ measure │ ──{"row": …, "peak": …}\n──► parent

A model stays from cell to cell. What the system kills (no memory) is told by the parent; what
Python can tell is a row that says why it has no figures. Models print to standard error.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

from reparto.bench._cells import Cell
from reparto.bench._failures import failed, why
from reparto.errors import RepartoError
from reparto.spec import Measurement, StrategyConfig, Work


class Bench:
    """Measures cells one after the other; what they have in common is kept."""

    def __init__(self) -> None:
        self._subject: tuple[tuple[str, ...], Any] | None = None
        self._forms: tuple[tuple[str, ...], Any] | None = None
        self._devices: dict[str, Any] = {}
        self._peaks: dict[tuple[str, str], float] = {}

    def measure(self, cell: Cell, peak: float = 0.0, trace: str = "") -> tuple[Measurement, float]:
        """Measure one.

        Args:
            cell: What.
            peak: Operations a second of its device in its precision, if that is known.
            trace: A folder, if a step is to be traced instead; the row's notes then say what
                took the time.

        Returns:
            Its row, and that peak.
        """
        from reparto.bench._device import Device

        try:
            if cell.device not in self._devices:
                self._devices[cell.device] = Device(cell.device)
            device = self._devices[cell.device]
            if trace:
                return self._traced(cell, device, trace), 0.0
            known = peak or self._peaks.get((cell.device, cell.dtype)) or 0.0
            if not known:
                known = device.peak_flops(cell.dtype)
            self._peaks[cell.device, cell.dtype] = known
            return self._row(cell, device, known), known
        except KeyboardInterrupt:
            raise
        except Exception as error:  # a model of the user, a compiler, a driver
            self._forms = None
            if not isinstance(error, RepartoError):  # what is known harms no other cell
                self._subject = None
            return failed(cell, why(error)), self._peaks.get((cell.device, cell.dtype), 0.0)

    def _row(self, cell: Cell, device: Any, peak: float) -> Measurement:
        from reparto.bench import _infer, _train

        subject = self._subject_of(cell)
        if cell.mode == "train":
            self._forms = None
            row: Measurement = _train.train(subject, cell, device, peak)
            return row
        key = (*_identity(cell), cell.device)
        if self._forms is None or self._forms[0] != key:
            self._forms = (key, _infer.Forms(subject, device))
        forms = self._forms[1]
        if cell.deadline_s is None:
            found: Measurement = _infer.infer(subject, cell, forms, peak)
            return found
        return self._within(subject, cell, forms, peak)

    def _traced(self, cell: Cell, device: Any, folder: str) -> Measurement:
        from reparto.bench._trace import trace

        subject = self._subject_of(cell)
        words = trace(subject, cell, device, Path(folder))
        return Measurement(work=subject.work(cell), device=cell.device, notes=words)

    def _within(self, subject: Any, cell: Cell, forms: Any, peak: float) -> Measurement:
        from reparto.bench import _infer
        from reparto.bench._deadline import MOST, largest

        limit = cell.deadline_s or 0.0
        ended = ""

        def meets(rows: int) -> bool:
            nonlocal ended
            try:
                return _infer.in_time(subject, cell, forms, rows, limit)
            except Exception as error:
                ended = f"a call with {rows} samples failed: {why(error)}"
                return False

        rows = largest(meets)
        if rows == 0:
            return failed(cell, ended or f"one sample takes longer than {limit:g} s")
        row = _infer.infer(subject, dataclasses.replace(cell, batch_rows=rows), forms, peak)
        told = f"the largest call within {limit:g} s" + (", of those tried" * (rows >= MOST))
        return dataclasses.replace(row, notes=(told, *([ended] if ended else []), *row.notes))

    def _subject_of(self, cell: Cell) -> Any:
        from reparto.bench._subject import Subject

        key = _identity(cell)
        if self._subject is None or self._subject[0] != key:
            self._subject = self._forms = None  # two large models do not fit beside each other
            gc.collect()
            gc.freeze()  # libraries: looking through them again takes a tenth of a second a cell
            self._subject = (key, Subject(cell))
        return self._subject[1]


def _identity(cell: Cell) -> tuple[str, ...]:
    return cell.source, cell.suite, cell.model, cell.where


def cell_of(plain: dict[str, Any]) -> Cell:
    """A cell that came as JSON; both ends are of the same version."""
    for name in ("input_shape", "args"):
        plain[name] = tuple(plain[name])
    plain["config"] = StrategyConfig(**plain["config"])
    return Cell(**plain)


def row_of(plain: dict[str, Any]) -> Measurement:
    """A row that came as JSON.

    Raises:
        TypeError: If it is of another version.
    """
    for name in ("hidden", "flags", "notes"):
        plain[name] = tuple(plain[name])
    return Measurement(**{**plain, "work": Work(**plain["work"])})


def main() -> None:
    """Measure what comes in, until nothing more comes."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever prints, prints elsewhere
    warnings.simplefilter("ignore")
    bench = Bench()
    for line in sys.stdin:
        asked = json.loads(line)
        row, peak = bench.measure(cell_of(asked["cell"]), asked["peak"], asked["trace"])
        answers.write(json.dumps({"row": dataclasses.asdict(row), "peak": peak}) + "\n")


if __name__ == "__main__":
    main()
