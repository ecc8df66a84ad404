"""A report in words and numbers, for the page: crossovers, deadlines, flags, cells of tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from reparto.bench._crossover import Ratio, comparable, crossover, device_pairs, ratios
from reparto.bench._panels import count_tick
from reparto.bench._shown import FLAGS, NONE, is_sound, labels_of, mark_of, way_of, ways_of
from reparto.spec import BenchReport, Measurement

TRAIN_HEADER = (
    *("", "model", "device", "batch", "step", "95 %", "epoch", "samples/s"),
    *("parameters", "of peak", "memory", "energy", "loss: first", "last", "constant"),
)
INFER_HEADER = (
    *("", "model", "device", "samples", "p50", "95 %", "p99", "samples/s"),
    *("parameters", "of peak", "memory", "energy"),
)


def told_crossovers(rows: Sequence[Measurement]) -> list[str]:
    """From which size on which device is the faster: a sentence a batch, and one a CNN."""
    train = [row for row in rows if row.mode == "train"]
    batches = sorted({row.work.batch_rows for row in train})
    told = []
    for pair in device_pairs(train):
        found = {batch: ratios(train, pair, batch) for batch in batches}
        told += [_told_batch(batch, comparable(all_), pair) for batch, all_ in found.items()]
        alone: dict[str, list[tuple[float, int]]] = {}
        for batch, all_ in found.items():
            for one in all_:
                if one.sound and not one.perceptron:
                    alone.setdefault(one.model, []).append((one.times, batch))
        told += [_told_model(model, sorted(times), pair) for model, times in alone.items()]
    return [one for one in told if one]


def _told_batch(batch: int, found: Sequence[Ratio], pair: tuple[str, str]) -> str:
    if len(found) < 2:
        return ""
    where = crossover(found)
    if where is not None:
        size = count_tick(float(f"{where:.2g}"))
        return (
            f"Batch {batch}: from about {size} parameters on, {pair[1]} is faster than {pair[0]}."
        )
    ahead = sum(ratio.times >= 1 for ratio in found)
    faster, slower = pair[::-1] if ahead > len(found) / 2 else pair
    every = "every" if ahead in (0, len(found)) else "nearly every"
    return f"Batch {batch}: {faster} is faster than {slower} with {every} model."


def _told_model(model: str, times: Sequence[tuple[float, int]], pair: tuple[str, str]) -> str:
    (low, few), (high, many) = times[0], times[-1]
    told = f"{low:.2g} times as fast as {pair[0]} at batch {few}"
    if few != many:
        told += f", {high:.2g} times at batch {many}"
    return f"{model}: {pair[1]} is {told}."


def told_deadline(rows: Sequence[Measurement], deadline_s: float) -> list[tuple[str, ...]]:
    """The most samples of a call that are answered in time: a row a model, a column a way."""
    infer = [row for row in rows if row.mode == "infer"]
    labels = labels_of(ways_of(infer))
    infer = [row for row in infer if is_sound(row)]
    models = {row.work.model: row.work.num_parameters for row in infer}
    told: list[tuple[str, ...]] = [("model", *labels.values())]
    for model in sorted(models, key=lambda model: models[model]):
        own = [row for row in infer if row.work.model == model]
        verdicts = (
            _in_time([row for row in own if way_of(row) == way], deadline_s) for way in labels
        )
        told.append((model, *verdicts))
    return told


def _in_time(rows: Sequence[Measurement], deadline_s: float) -> str:
    known = {row.work.num_samples: row.p99_s for row in rows if row.p99_s is not None}
    good = [samples for samples, p99_s in known.items() if p99_s <= deadline_s]
    if not known:
        return NONE
    if not good:
        return f"none, not even {min(known)}"
    return f"{max(good)}{' or more' if max(good) == max(known) else ''}"


def train_cells(row: Measurement, label: str) -> tuple[str, ...]:
    """A training row as a table shows it."""
    return (
        *_first_cells(row, label, row.work.batch_rows),
        *(_span(row), duration(row.epoch_s), _rate(row)),
        *_last_cells(row),
        *(_figure(number) for number in (row.loss_first, row.loss_last, row.loss_constant)),
    )


def infer_cells(row: Measurement, label: str) -> tuple[str, ...]:
    """A row of inference as a table shows it."""
    return (
        *_first_cells(row, label, row.work.num_samples),
        *(_span(row), duration(row.p99_s), _rate(row)),
        *_last_cells(row),
    )


def signs(row: Measurement) -> str:
    """All flags of a row, as signs."""
    return "".join(sign for flag, (_, sign, _) in FLAGS.items() if flag in row.flags)


def why(row: Measurement) -> str:
    """What is wrong with a row, or is to be known of it, in words."""
    told = [note for note in (row.failure, *row.notes) if note]
    flags = [flag.replace("-", " ") for flag in FLAGS if flag in row.flags]
    new = [flag for flag in flags if not any(note.startswith(flag) for note in told)]
    return "; ".join([*new, *told])


def counts(report: BenchReport) -> str:
    """How many rows there are, and how many of them can be trusted."""
    rows = report.measurements
    sound = sum(is_sound(row) for row in rows)
    parts = [f"{len(rows)} rows"]
    if report.planned > len(rows):
        parts = [f"{len(rows)} of {report.planned} rows; the others were not made yet"]
    if report.took_s:
        parts.append(f"measured in {duration(report.took_s)}")
    flagged = sum(mark_of(row) is not None for row in rows)
    if flagged:
        parts.append(f"{flagged} flagged, {len(rows) - sound} of them left out of comparisons")
    return " · ".join(parts)


def duration(seconds: float | None) -> str:
    """A time with three figures.

    Example:
        >>> duration(5.7e-5), duration(0.0123), duration(3.2), duration(754.0), duration(None)
        ('57.0 µs', '12.3 ms', '3.20 s', '12:34 min', '–')
    """
    if seconds is None or not math.isfinite(seconds):
        return NONE
    if seconds >= 99.95:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes}:{rest:02} min"
    for scale, unit in ((1e6, "µs"), (1e3, "ms")):
        if seconds * scale < 999.5:
            return f"{_three(seconds * scale)} {unit}"
    return f"{_three(seconds)} s"


def _first_cells(row: Measurement, label: str, size: int) -> tuple[str, ...]:
    return signs(row), row.work.model, label, _count(size), duration(row.step_s)


def _last_cells(row: Measurement) -> tuple[str, ...]:
    share = NONE if row.share_of_peak is None else f"{100 * row.share_of_peak:.2g} %"
    energy = NONE if row.energy_j is None else f"{_figure(row.energy_j)} J"
    return _count(row.work.num_parameters), share, _memory(row.peak_bytes), energy


def _span(row: Measurement) -> str:
    """How far the interval reaches on either side of the median, the wider of both."""
    if not row.step_s or row.low_s is None or row.high_s is None:
        return NONE
    off = max(row.high_s - row.step_s, row.step_s - row.low_s)
    return f"± {100 * off / row.step_s:.2g} %"


def _rate(row: Measurement) -> str:
    if row.samples_per_s is None:
        return NONE
    return _count(float(f"{row.samples_per_s:.3g}"))


def _memory(num_bytes: int) -> str:
    return NONE if not num_bytes else f"{_figure(num_bytes / 2**20)} MiB"


def _count(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def _figure(number: float | None) -> str:
    return NONE if number is None else f"{number:.3g}"


def _three(number: float) -> str:
    decimals = max(0, 2 - math.floor(math.log10(number))) if number > 0 else 0
    return f"{number:.{min(decimals, 2)}f}"
