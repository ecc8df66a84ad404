"""Rows as a table: the same cells on the screen, in the CSV and in Parquet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from reparto.spec import BenchReport, Measurement

NONE = "–"
_WORDS = (0, 1, 2, 3, 4, 13)  # columns that hold words stand to the left
_HEADER = (
    *("model", "mode", "form", "device", "dtype", "rows", "step", "± 95 %", "samples/s", "epoch"),
    *("of peak", "memory", "loss", "remarks"),
)


def text_table(report: BenchReport) -> list[str]:
    """Lines of one table, with what each mark means below it."""
    rows = [_HEADER, *(cells(row) for row in report.measurements)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  "
        + "  ".join(
            cell.ljust(width) if index in _WORDS else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    missing = report.planned - len(report.measurements)
    if missing > 0:
        lines.append(f"  {missing} of {report.planned} cells are not measured yet")
    return lines


def cells(row: Measurement) -> tuple[str, ...]:
    """A row as people read it."""
    form = row.form if row.strategy == "single" else f"{row.strategy} on {row.num_workers}"
    name = row.work.model or row.work.suite
    return (
        *(name, row.mode, form, row.device, row.dtype, _or_none(str, row.work.batch_rows or None)),
        *(_or_none(seconds, row.step_s), _spread(row), _or_none(figures, row.samples_per_s)),
        *(_or_none(seconds, row.epoch_s), _or_none(per_cent, row.share_of_peak)),
        *(_or_none(size, row.peak_bytes or None), _or_none("{:.4g}".format, row.loss_last)),
        ", ".join([*(flag for flag in row.flags if flag != "failed"), *_failure(row)]),
    )


#: Columns of the files: name, and what a row has there.
COLUMNS: dict[str, Callable[[Measurement], Any]] = {
    "suite": lambda row: row.work.suite,
    "model": lambda row: row.work.model,
    "hidden": lambda row: "-".join(map(str, row.hidden)),
    "num_parameters": lambda row: row.work.num_parameters,
    "num_samples": lambda row: row.work.num_samples,
    "batch_rows": lambda row: row.work.batch_rows,
    "data": lambda row: row.work.data,
    "target_steps": lambda row: row.work.target_steps,
    **{
        name: attrgetter(name)
        for name in (
            *("mode", "form", "device", "device_name", "threads", "dtype", "strategy"),
            *("num_workers", "num_steps", "step_s", "low_s", "high_s", "p99_s", "epoch_s"),
            *("samples_per_s", "flops_a_step", "share_of_peak", "peak_bytes", "energy_j"),
            *("loss_first", "loss_last", "loss_constant"),
        )
    },
    "flags": lambda row: " ".join(row.flags),
    "notes": lambda row: "; ".join(row.notes),
    "failure": lambda row: row.failure,
}


def seconds(number: float) -> str:
    """A time with three figures.

    Example:
        >>> seconds(0.00123), seconds(12.34), seconds(0.0000052)
        ('1.23 ms', '12.3 s', '5.2 µs')
    """
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if number * factor >= 0.9995 or unit == "µs":
            return f"{figures(number * factor)} {unit}"
    return ""


def size(num_bytes: float) -> str:
    """A number of bytes with three figures."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= 0.9995 * factor:
            return f"{figures(num_bytes / factor)} {unit}"
    return f"{num_bytes:.0f} B"


def figures(number: float) -> str:
    """Three figures, without a power of ten, thousands apart."""
    if not math.isfinite(number):
        return f"{number:g}"
    if number >= 999.5:
        return f"{float(f'{number:.3g}'):,.0f}".replace(",", " ")
    return f"{float(f'{number:.3g}'):g}"


def per_cent(part: float) -> str:
    """A part of a whole."""
    return f"{figures(100 * part)} %"


def _or_none(write: Callable[[Any], str], value: Any) -> str:
    return NONE if value is None else write(value)


def _spread(row: Measurement) -> str:
    if row.low_s is None or row.high_s is None or not row.step_s:
        return NONE
    return per_cent((row.high_s - row.low_s) / 2 / row.step_s)


def _failure(row: Measurement) -> Sequence[str]:
    return [f"failed: {row.failure}"] if row.failure else []
