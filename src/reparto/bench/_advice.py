"""Advice from measurements: pure, so that rows of a file give the same as rows just made.

rows ──► trustworthy ones, by cell ──► Choice: the fastest device, by its best form
                                   ├─► Crossover: from which batch or width a GPU pays
                                   ├─► Verdict: the largest call within the deadline
                                   └─► words
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from reparto.bench import _advice_words
from reparto.bench._cells import is_script
from reparto.spec import Advice, Choice, Crossover, Measurement, Verdict

ANY_DEVICE = "*"
_A_MILLION = 1e6


class CellKind(NamedTuple):
    """What rows have to share to be alternatives to each other."""

    suite: str
    model: str
    mode: str
    dtype: str
    batch_rows: int


def advise(
    rows: Sequence[Measurement],
    prices: Mapping[str, float] | None = None,
    deadline_s: float | None = None,
) -> Advice:
    """Say which device to use for what.

    Args:
        rows: With their flags, as `guarded` gives them.
        prices: Of an hour of a device, ``*`` for those that are not named.
        deadline_s: Of a call of inference.
    """
    prices = prices or {}
    by_cell: dict[CellKind, list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.step_s and not {"failed", "not-like-for-like"} & set(row.flags):
            by_cell[_kind(row)].append(row)
    choices = tuple(_choice(kind, _learned(found), prices) for kind, found in by_cell.items())
    crossovers = (*_along_batch(choices), *_along_parameters(choices))
    verdicts = tuple(_verdicts(rows, deadline_s)) if deadline_s is not None else ()
    words = _advice_words.words(rows, choices, crossovers, verdicts)
    return Advice(choices=choices, crossovers=crossovers, verdicts=verdicts, words=words)


def _kind(row: Measurement) -> CellKind:
    work = row.work
    rows = 0 if is_script(work.suite) else work.batch_rows
    return CellKind(work.suite, work.model, row.mode, row.dtype, rows)


def _learned(rows: list[Measurement]) -> list[Measurement]:
    """Without those that did not learn, if others of the same cell did."""
    good = [row for row in rows if "did-not-learn" not in row.flags]
    return good or rows


def _choice(kind: CellKind, rows: list[Measurement], prices: Mapping[str, float]) -> Choice:
    best: dict[str, Measurement] = {}
    for row in sorted(rows, key=lambda row: row.step_s or math.inf):
        best.setdefault(row.device, row)
    first, *rest = best.values()
    costs = {
        device: cost
        for device, row in best.items()
        if (cost := _cost(row, prices.get(device, prices.get(ANY_DEVICE)))) is not None
    }
    return Choice(
        suite=kind.suite,
        model=kind.model,
        num_parameters=first.work.num_parameters,
        mode=first.mode,
        dtype=kind.dtype,
        batch_rows=kind.batch_rows,
        device=first.device,
        form=_form(first),
        step_s=first.step_s or 0.0,
        others={row.device: row.step_s or 0.0 for row in rest},
        costs=costs,
        cheapest=min(costs, key=costs.__getitem__) if costs else "",
        undecided=bool(rest and first.high_s and rest[0].low_s and first.high_s > rest[0].low_s),
    )


def _form(row: Measurement) -> str:
    return row.form if row.strategy == "single" else f"{row.strategy} on {row.num_workers}"


def _cost(row: Measurement, price: float | None) -> float | None:
    """Of a pass over the data; of a million samples of inference."""
    if price is None or not row.step_s:
        return None
    if row.mode == "train":
        return None if row.epoch_s is None else price * row.epoch_s / 3600
    return price * row.step_s / max(1, row.work.batch_rows) * _A_MILLION / 3600


# ----------------------------------------------------------------------------- crossovers


def _along_batch(choices: Iterable[Choice]) -> Iterable[Crossover]:
    lines: dict[tuple[str, str, str, str], list[Choice]] = defaultdict(list)
    for one in choices:
        lines[one.suite, one.model, one.mode, one.dtype].append(one)
    for (_, model, _, _), line in lines.items():
        points = sorted(line, key=lambda one: one.batch_rows)
        yield from _crossovers(points, [float(one.batch_rows) for one in points], "batch", model)


def _along_parameters(choices: Iterable[Choice]) -> Iterable[Crossover]:
    lines: dict[tuple[str, str, str, int], list[Choice]] = defaultdict(list)
    for one in choices:
        if one.num_parameters:
            lines[one.suite, one.mode, one.dtype, one.batch_rows].append(one)
    for (_, _, _, rows), line in lines.items():
        points = sorted(line, key=lambda one: one.num_parameters)
        sizes = [float(one.num_parameters) for one in points]
        if len(set(sizes)) > 1:
            yield from _crossovers(points, sizes, "parameters", str(rows))


def _crossovers(
    points: Sequence[Choice], sizes: Sequence[float], along: str, fixed: str
) -> Iterable[Crossover]:
    gpus = {device for one in points for device in _times(one) if device.startswith("cuda")}
    for gpu in sorted(gpus):
        known = [
            (at, _times(one)["cpu"] / _times(one)[gpu])
            for one, at in zip(points, sizes, strict=True)
            if {"cpu", gpu} <= _times(one).keys()
        ]
        if known:
            yield Crossover(
                mode=points[0].mode,
                dtype=points[0].dtype,
                along="batch" if along == "batch" else "parameters",
                fixed=fixed,
                cpu="cpu",
                gpu=gpu,
                at=pays_from(known),
                least=known[0][0],
            )


def _times(choice: Choice) -> dict[str, float]:
    return {choice.device: choice.step_s, **choice.others}


def pays_from(known: Sequence[tuple[float, float]]) -> float | None:
    """From which size on something is faster.

    Args:
        known: Sizes, ascending, and how many times as fast it is there.

    Returns:
        Between the last size at which it is not and the next one, on logarithmic scales; None
        if it is not at the largest.

    Example:
        >>> pays_from([(1.0, 0.5), (100.0, 2.0)]), pays_from([(1.0, 2.0)]), pays_from([(1.0, 0.5)])
        (10.0, 1.0, None)
    """
    slower = [index for index, (_, times) in enumerate(known) if times <= 1]
    if not slower:
        return known[0][0]
    if slower[-1] == len(known) - 1:
        return None
    (left, before), (right, after) = known[slower[-1]], known[slower[-1] + 1]
    if left <= 0 or before <= 0:
        return right
    part = -math.log(before) / (math.log(after) - math.log(before))
    return round(math.exp(math.log(left) + part * (math.log(right) - math.log(left))), 6)


# ------------------------------------------------------------------------------- deadline


def _verdicts(rows: Sequence[Measurement], deadline_s: float) -> Iterable[Verdict]:
    calls: dict[tuple[str, str, str, str], list[Measurement]] = defaultdict(list)
    for row in rows:
        if row.mode == "infer" and not row.failure and row.p99_s is not None:
            calls[row.work.suite, row.work.model, row.device, row.dtype].append(row)
    for (suite, model, device, dtype), found in calls.items():
        good = [row for row in found if (row.p99_s or math.inf) <= deadline_s]
        best = max(good, key=lambda row: (row.work.batch_rows, -(row.p99_s or 0.0)), default=None)
        largest = best.work.batch_rows if best is not None else 0
        # A row that searched for the largest call has tried larger ones.
        searched = any(
            note.startswith("the largest call within") for row in found for note in row.notes
        )
        yield Verdict(
            suite=suite,
            model=model,
            device=device,
            form=best.form if best is not None else "",
            dtype=dtype,
            deadline_s=deadline_s,
            largest_rows=largest,
            at_least=not searched and largest == max(row.work.batch_rows for row in found),
        )
