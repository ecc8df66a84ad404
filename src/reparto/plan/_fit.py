"""The largest batch that fits, from short runs with batches of a few sizes. Pure.

    memory │                              ┌ limit
           │ ─────────────────────────────┼── usable: a margin is left
           │                          ×   │      3. predicted, and tried
           │                ·  ·          │
           │       ×  ·                   │      2. larger: so large that the difference can be
           │  ×                           │         measured, and no larger
           │ base + row_bytes × rows      │      1. the script's own batch
           └──────────────────────────────┴─► rows

What comes next follows from what was measured so far, so all of this can be tried on paper. Where
memory grows in steps or bends (similarities of all pairs of a batch), the third run is not where
it was expected; the line is then drawn through the two largest runs and another is tried.

The heap of glibc keeps gaps between tensors of less than 32 MiB, which can be a third of all
memory; larger ones are mapped one by one and leave none. So a small run, whose tensors are small,
tells too much of a large one. It is therefore a *model* of it: with an eighth of the rows, the
heap's thresholds are an eighth as well. How large the large one is, is known only afterwards; if
the scale turns out wrong by a factor of two, another small run follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reparto.spec import FitPoint

#: Share of the memory that is left free: a heap grows a little after the first steps, and from run
#: to run, as blocks are freed in another order; allocators of GPUs leave gaps; other programs run.
MARGIN = 0.03
#: By so much the peaks of two equal runs may differ.
NOISE_BYTES = 4 << 20
#: Beyond that, memory is not what limits the batch.
MAX_ROWS = 1 << 20
#: A batch that is larger by less than that is not worth another run.
WORTH = 0.02
#: The scale of the script's own batch, of which nothing is known yet.
SMALLEST = 1 / 512
#: So many small runs will do.
MAX_SMALL = 6
#: Rounding to a number that hardware likes may cost so much.
ROUNDING = 0.01

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class MemoryLine:
    """Memory as a function of the rows of a batch.

    Attributes:
        base_bytes: What does not depend on them.
        row_bytes: What each one adds.
    """

    base_bytes: float
    row_bytes: float

    def at(self, rows: int) -> int:
        """The peak with so many rows."""
        return round(self.base_bytes + self.row_bytes * rows)

    def rows_at(self, num_bytes: float) -> int:
        """The most rows with which the peak is no higher than that; at least 0."""
        return max(0, int((num_bytes - self.base_bytes) / self.row_bytes))


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What should be tried next.

    Attributes:
        rows: Of each batch.
        scale: Of the heap's thresholds; 1 for a run that confirms.
    """

    rows: int
    scale: float = 1.0


def usable_bytes(limit_bytes: int) -> int:
    """What of a limit a recommended batch may use."""
    return int(limit_bytes * (1 - MARGIN))


def fit_line(points: Sequence[FitPoint]) -> MemoryLine | None:
    """Draw the line through the largest run and the next one that is well apart from it.

    As long as there are only small runs, through the smallest and the one with the best scale.

    Returns:
        None if no two runs differ by more than chance would have it.
    """
    fitting = [point for point in points if point.fits]
    if len(fitting) < 2:
        return None
    first = min(fitting, key=lambda point: point.rows)
    real = sorted((point for point in fitting if point.scale == 1), key=lambda point: point.rows)
    top = real[-1] if real else _best_scaled(fitting)
    if top is first:
        top = max(fitting, key=lambda point: point.rows)
    apart = [point for point in real if point.rows <= 0.75 * top.rows]
    for other in (*apart[-1:], first):
        risen = top.peak_bytes - other.peak_bytes
        if risen >= 2 * NOISE_BYTES and top.rows > other.rows:
            row_bytes = risen / (top.rows - other.rows)
            return MemoryLine(
                base_bytes=top.peak_bytes - row_bytes * top.rows, row_bytes=row_bytes
            )
    return None


def next_attempt(
    points: Sequence[FitPoint], *, idle_bytes: int, limit_bytes: int, has_heap: bool = True
) -> Attempt | None:
    """Tell what should be tried next.

    Args:
        points: What was tried so far.
        idle_bytes: What a worker has before the script begins.
        limit_bytes: What it may have in all.
        has_heap: Whether memory comes from a heap, whose thresholds can be scaled.

    Returns:
        None when the largest batch is found, when there is none (not even one row fits), or when
        memory does not limit it.
    """
    room = max(1, usable_bytes(limit_bytes) - idle_bytes)
    failed = min((point.rows for point in points if not point.fits), default=MAX_ROWS + 1)
    below = (point for point in points if point.fits and point.rows < failed)
    fitting = sorted(below, key=lambda point: point.rows)
    known = {point.rows for point in points}
    scale = _share(room) if has_heap else 1.0
    if not fitting:
        rows = failed // 8 or (1 if failed > 1 else 0)
        return Attempt(rows=rows, scale=SMALLEST if has_heap else 1.0) if rows else None
    if not is_measured(points, idle_bytes=idle_bytes, limit_bytes=limit_bytes):
        wanted = _larger(fitting, idle_bytes, room)
        if wanted >= failed <= MAX_ROWS:  # it lies between a size that fits and one that does not
            wanted = (fitting[-1].rows + failed) // 2
        if wanted <= MAX_ROWS and wanted not in known:
            return Attempt(rows=wanted, scale=scale)
        top = fitting[-1]
        is_last = failed <= MAX_ROWS and top.scale < 1  # so few rows are all that fits
        return Attempt(rows=top.rows) if is_last else None
    if has_heap and (small := _better_scaled(points, room, limit_bytes)) is not None:
        return small
    confirming = _confirming(points, failed, limit_bytes)
    return Attempt(rows=confirming) if confirming is not None else None


def is_measured(points: Sequence[FitPoint], *, idle_bytes: int, limit_bytes: int) -> bool:
    """Whether what a row takes is known well enough to tell the largest batch from it."""
    peaks = [point.peak_bytes for point in points if point.fits]
    room = max(1, usable_bytes(limit_bytes) - idle_bytes)
    enough = max(2 * NOISE_BYTES, min(room // 16, 64 * _MIB))
    risen = max(peaks, default=0) - min(peaks, default=0)
    return fit_line(points) is not None and risen >= enough


def recommended(points: Sequence[FitPoint], limit_bytes: int) -> FitPoint | None:
    """The largest batch that was tried and leaves the margin; None if there is none.

    Half of the margin will do: a prediction may be off by the other half.
    """
    most = limit_bytes * (1 - MARGIN / 2)
    real = [point for point in points if point.fits and point.scale == 1]
    good = [point for point in real if point.peak_bytes <= most]
    return max(good, key=lambda point: point.rows, default=None)


def friendly(rows: int) -> int:
    """Round down to a multiple of 64, 32, 16 or 8 where that costs next to nothing."""
    for step in (64, 32, 16, 8):
        rounded = rows // step * step
        if rounded and rows - rounded <= ROUNDING * rows:
            return rounded
    return rows


def predicted_rows(points: Sequence[FitPoint], limit_bytes: int) -> int:
    """The largest batch as the line has it, with the margin; 0 where there is no line."""
    line = fit_line(points)
    if line is None:
        return 0
    return friendly(min(MAX_ROWS, line.rows_at(usable_bytes(limit_bytes))))


def _larger(fitting: Sequence[FitPoint], idle_bytes: int, room: int) -> int:
    """A second size: by a share of the room larger than the first, as far as can be told."""
    top, first = fitting[-1], fitting[0]
    grown = max(1, top.peak_bytes - idle_bytes)
    if len(fitting) == 1 and grown > room / 2 and top.rows > 1:
        return top.rows // 2  # it is large already
    target = _share(room) * room
    most = grown / top.rows  # if all of it were the rows'
    if top.rows > first.rows:  # it is less: two sizes could not be told apart
        risen = max(0, top.peak_bytes - first.peak_bytes) + 2 * NOISE_BYTES
        most = min(most, risen / (top.rows - first.rows))
    return int(top.rows * min(64.0, max(2.0, target / most / top.rows)))


def _share(room: int) -> float:
    """How much of the room a small run should take: enough to be measured, and no more."""
    return min(1 / 4, max(1 / 8, 128 * _MIB / room), 4096 * _MIB / room)


def _best_scaled(small: Sequence[FitPoint]) -> FitPoint:
    """Of small runs, the one that is the best model: the last with the largest scale."""
    return max(enumerate(small), key=lambda numbered: (numbered[1].scale, numbered[0]))[1]


def _better_scaled(points: Sequence[FitPoint], room: int, limit_bytes: int) -> Attempt | None:
    """Another small run, if those there are have the wrong scale or are too near; else None."""
    small = [point for point in points if point.fits]
    if any(point.scale == 1 for point in points) or len(points) >= MAX_SMALL:
        return None
    rows, best = max(1, predicted_rows(points, limit_bytes)), _best_scaled(small)
    scale = _share(room)
    wanted = max(1, round(rows * scale))
    is_right = 0.5 <= best.scale / min(1.0, best.rows / rows) <= 2.0
    if not is_right and all(abs(point.rows - wanted) > 0.1 * wanted for point in points):
        return Attempt(rows=wanted, scale=scale)
    if min(point.rows for point in small) > best.rows / 8 and best.rows >= 8:
        return Attempt(rows=best.rows // 8, scale=best.scale / 8)
    return None


def _confirming(points: Sequence[FitPoint], failed: int, limit_bytes: int) -> int | None:
    wanted = predicted_rows(points, limit_bytes)
    best = recommended(points, limit_bytes)
    low = best.rows if best is not None else 0
    num_failed = sum(not point.fits for point in points)
    if wanted >= failed:
        # Memory bends upwards. Near a first failure a little less may do; else, halve.
        wanted = friendly(low + int((failed - low) * (0.85 if num_failed == 1 else 0.5)))
    known = {point.rows for point in points if point.scale == 1 or not point.fits}
    if wanted < 1 or wanted in known or wanted <= low * (1 + WORTH):
        return None
    return wanted
