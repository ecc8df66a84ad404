"""The leaderboard: as cells for people, and as CSV for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from reparto.search._report._standing import best_of, tied_with
from reparto.search._report._words import (
    NONE,
    number,
    plus_minus,
    seconds,
    settings_of,
    short_of,
    size,
)
from reparto.search.metrics import METRICS
from reparto.spec import Evaluation, SearchResult, finite

#: Told beside the metric of the search, where they are known: the first of these that is another.
_BESIDE = ("accuracy", "auroc", "r2", "mae", "log-loss")
_MOST_BESIDE = 2


def beside(result: SearchResult) -> tuple[str, ...]:
    """Other metrics that are worth a column."""
    known = {name for one in result.leaderboard[:50] for name in one.scores}
    found = [name for name in _BESIDE if name in known and name != result.metric]
    return tuple(found[:_MOST_BESIDE])


def have_sizes(result: SearchResult) -> bool:
    """Whether candidates leave something: a model, or files of a script."""
    return any(one.size_bytes > 0 for one in result.leaderboard)


def have_times(result: SearchResult) -> bool:
    """Whether candidates are models, which answer rows."""
    return any(one.predict_row_s > 0 for one in result.leaderboard)


def header(result: SearchResult) -> tuple[str, ...]:
    """Of `cells`."""
    others = tuple(short_of(name) for name in beside(result))
    model = (*["size"] * have_sizes(result), *["a row"] * have_times(result))
    first = ("", "technique", short_of(result.metric))
    return (*first, *others, "busy", *model, "number", "settings")


def cells(result: SearchResult, most: int) -> list[tuple[str, ...]]:
    """Text, a row a candidate that is done, the best first.

    ``=`` stands before those that cannot be told apart from the best.
    """
    best = best_of(result)
    tied = set() if best is None else {one.candidate.number for one in tied_with(result, best)}
    others = beside(result)
    are_sizes, are_times, found = have_sizes(result), have_times(result), []
    for place, one in enumerate(result.leaderboard[:most], start=1):
        mark = "=" if one.candidate.number in tied else ""
        found.append((
            f"{mark}{place}",
            one.candidate.technique,
            plus_minus(one),
            *(number(one.scores.get(name)) for name in others),
            seconds(one.busy_s) if one.busy_s else "",
            *([size(one.size_bytes)] * are_sizes),
            *([seconds(one.predict_row_s) if one.predict_row_s else NONE] * are_times),
            f"#{one.candidate.number}",
            settings_of(one.candidate, result),
        ))  # fmt: skip
    return found


def as_csv(result: SearchResult) -> str:
    """Every candidate, those that are done first, the best of them on top."""
    metrics = _metrics(result)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow((
        "rank", "number", "technique", "origin", "status", "score", "spread", *metrics, "busy_s",
        "began_s", "ended_s", "worker", "size_bytes", "peak_bytes", "predict_row_s", "settings",
        "failure",
    ))  # fmt: skip
    ranked = result.leaderboard
    places = {one.candidate.number: place for place, one in enumerate(ranked, start=1)}
    rest = [one for one in result.evaluations if one.candidate.number not in places]
    for one in (*ranked, *rest):
        writer.writerow(_row(one, places.get(one.candidate.number), metrics))
    return stream.getvalue()


def _metrics(result: SearchResult) -> list[str]:
    names = {name for one in result.evaluations for name in one.scores}
    return [*(name for name in METRICS if name in names), *sorted(names - METRICS.keys())]


def _row(one: Evaluation, place: int | None, metrics: Sequence[str]) -> tuple[object, ...]:
    candidate = one.candidate
    plain = {name: value for name, value in candidate.settings.items()}
    return (
        "" if place is None else place,
        candidate.number,
        candidate.technique,
        candidate.origin,
        one.status,
        _exact(one.score),
        _exact(one.spread),
        *(_exact(one.scores.get(name)) for name in metrics),
        f"{one.busy_s:.4f}",
        f"{one.began_s:.4f}",
        f"{one.ended_s:.4f}",
        one.worker,
        one.size_bytes or "",
        one.peak_bytes or "",
        f"{one.predict_row_s:.4g}" if one.predict_row_s else "",
        json.dumps(finite(plain), default=str),
        one.failure,
    )


def _exact(value: float | None) -> object:
    return "" if value is None else repr(float(value))
