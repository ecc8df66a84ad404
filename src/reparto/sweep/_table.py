"""A comparison as a table: the same cells on the screen and on the page."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence

from reparto.spec import ComparedRun, Comparison, Waypoint

NOT_REACHED = "not reached"
NONE = "–"


def header() -> tuple[str, ...]:
    """What stands above the columns."""
    return (
        *("strategy", "workers", "exact", "time", "samples", "sent", "steps"),
        *("samples/s", "waiting", "loss", "end"),
    )


def rows(comparison: Comparison) -> list[tuple[str, ...]]:
    """One row a run, in their order."""
    return [_row(run, comparison.target is not None) for run in comparison.runs]


def in_words(comparison: Comparison) -> str:
    """Who reached the target first, and who that talks with the fewest bytes; empty if nobody."""
    found = [
        (run.label, run.time_to(run.reached), run.reached.wire_bytes)
        for run in comparison.runs
        if run.reached is not None
    ]
    if not found:
        return ""
    fast, time_s, _ = min(found, key=lambda one: one[1])
    told = f"{fast} reached {comparison.target:g} first, after {seconds(time_s)}"
    talking = [one for one in found if one[2] > 0]
    if not talking:
        return f"{told}."
    quiet, _, sent = min(talking, key=lambda one: one[2])
    if quiet == fast:
        return f"{told}, and with the fewest bytes, {size(sent)} a worker."
    return f"{told}; {quiet} with the fewest bytes, {size(sent)} a worker."


def aligned(rows: Sequence[Sequence[str]], words: Container[int]) -> list[str]:
    """Lines of columns: those that hold words stand to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if index in words else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def seconds(number: float) -> str:
    """Write a duration with three figures, so that two of them can be compared."""
    if number < 0.0005:
        return "0 s"
    if number >= 100:
        minutes, rest = divmod(round(number), 60)
        return f"{minutes}:{rest:02} min"
    return f"{figures(number)} s"


def size(num_bytes: float) -> str:
    """Write a number of bytes with three figures."""
    if num_bytes < 999.5:
        return f"{num_bytes:.0f} B"
    num_bytes /= 1000
    for unit in ("kB", "MB", "GB"):
        if num_bytes < 999.5:
            return f"{figures(num_bytes)} {unit}"
        num_bytes /= 1000
    return f"{figures(num_bytes)} TB"


def share(part: float, whole: float) -> str:
    """Write a part of a whole in per cent."""
    return f"{100 * part / whole:.0f} %" if whole > 0 else NONE


def ending(run: ComparedRun) -> str:
    """How a run ended, in a few words."""
    if run.status != "failed":
        return {"reached": "at the target", "done": "done", "stopped": "stopped"}[run.status]
    failure = run.result.failure
    return f"failed: {failure.error}" if failure is not None else "failed"


def _row(run: ComparedRun, has_target: bool) -> tuple[str, ...]:
    at = run.reached if has_target else run.last
    absent = NOT_REACHED if has_target and run.status != "failed" else NONE
    used = _used(run, at) if at is not None else (absent, NONE, NONE)
    return (
        *(run.label, str(run.result.num_workers), "yes" if run.exact else "relaxed"),
        *used,
        *(count(at.step) if at is not None else NONE, _rate(run)),
        *(share(run.waiting_s, run.training_s), _loss(run.last), ending(run)),
    )


def _used(run: ComparedRun, at: Waypoint) -> tuple[str, str, str]:
    return seconds(run.time_to(at)), count(at.samples), size(at.wire_bytes)


def _rate(run: ComparedRun) -> str:
    if not run.training_s or not run.curve[-1].samples:
        return NONE
    return count(round((run.curve[-1].samples - run.curve[0].samples) / run.training_s))


def _loss(at: Waypoint | None) -> str:
    return NONE if at is None or at.trend is None else f"{at.trend:.4g}"


def count(number: int) -> str:
    """Write a number of things, thousands apart."""
    return f"{number:,}".replace(",", " ") if number else NONE


def figures(number: float) -> str:
    """Three figures, without a power of ten."""
    if not number or not math.isfinite(number):
        return f"{number:g}"
    number = float(f"{number:.3g}")
    decimals = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:.{min(decimals, 3)}f}" if decimals else f"{number:.0f}"
