"""A forecast as a table, and in words: the same cells on the screen and on the page."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reparto.plan import duration_text, price_text, time_measure
from reparto.spec import Forecast, Prediction, Survey
from reparto.sweep._survey_table import brief, fact_cells, host_cells, link_cells, slice_cells
from reparto.sweep._table import NONE, aligned, figures, seconds, size

MOST_ROWS = 20
ARROW = "→"


def forecast_lines(forecast: Forecast) -> list[str]:
    """All of it as text: what was measured, what is predicted, what is chosen and why."""
    survey = forecast.survey
    links = link_cells(survey)
    shown = shown_ways(forecast, MOST_ROWS)
    left = len(forecast.predictions) - len(shown)
    header = ("", *forecast_header(forecast))
    last = len(header) - 1
    columns = [
        (ARROW if one is forecast.best else "", *cells)
        for one, cells in zip(shown, forecast_rows(forecast, shown), strict=True)
    ]
    parts = [
        [f"Measured in {seconds(survey.took_s)}: {what_script(survey)}"],
        aligned(fact_cells(survey), words={0, 1}),
        aligned(slice_cells(survey), words={0}),
        aligned(host_cells(survey), words={0, 2}),
        aligned(links, words={0}) if links else [],
        [f"Assumed instead: {forecast.what_if}"] if forecast.what_if else [],
        [
            "Predicted, the fastest first:",
            *aligned([header, *columns], words={0, 1, 9, last}),
            *([f"  {left} more are left out"] if left else []),
        ],
        [f"{ARROW} {forecast.why}"],
        _relaxed_lines(forecast),
        [f"note: {note}" for note in survey.notes],
    ]
    return [line for part in parts if part for line in (*part, "")][:-1]


def what_script(survey: Survey) -> str:
    """The script and its arguments, and what computes."""
    command = shlex.join([os.path.basename(survey.script), *survey.args])
    return f"{command}, on {'GPUs' if survey.device == 'cuda' else 'CPUs'}"


def ranked(forecast: Forecast) -> list[Prediction]:
    """The fastest first; of equals the one that came first."""
    return sorted(forecast.predictions, key=time_measure(forecast.predictions))


def talked_of(forecast: Forecast) -> list[Prediction]:
    """The plain script on one machine, the fastest exact way of several workers, the chosen."""
    exact = [one for one in ranked(forecast) if one.exact and one.num_workers > 1]
    return [forecast.predictions[0], *exact[:1], forecast.best]


def shown_ways(
    forecast: Forecast, most: int, among: Iterable[Prediction] | None = None
) -> list[Prediction]:
    """The fastest ones, and always those that words are about.

    Args:
        forecast: Of all ways.
        most: So many at most.
        among: Those to take them from, if not all.
    """
    offered = {id(one) for one in (forecast.predictions if among is None else among)}
    ways = [one for one in ranked(forecast) if id(one) in offered]
    always = {id(one) for one in talked_of(forecast)} & offered
    others = [id(one) for one in ways if id(one) not in always]
    kept = {*always, *others[: most - len(always)]}
    return [one for one in ways if id(one) in kept]


def forecast_header(forecast: Forecast) -> tuple[str, ...]:
    """What stands above the columns of `forecast_rows`."""
    return (
        *("strategy", "workers", "step", "samples/s", "whole script", "speed-up"),
        *("sent a step", "memory", "training"),
        *(("price",) if forecast.wish.prices else ()),
        "",
    )


def forecast_rows(forecast: Forecast, ways: Sequence[Prediction]) -> list[tuple[str, ...]]:
    """One row a way."""
    return [_row(one, bool(forecast.wish.prices)) for one in ways]


@dataclass(frozen=True, kw_only=True)
class Change:
    """What relaxed strategies change, and what is known of it.

    Attributes:
        labels: Of those that do so.
        changes: In their mathematics, in words.
        quality: What is known about the quality lost, and from where; empty if nothing is.
    """

    labels: tuple[str, ...]
    changes: str
    quality: str


def relaxed_changes(forecast: Forecast) -> list[Change]:
    """What changing the mathematics would mean, each change once."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for one in forecast.predictions:
        if not one.exact:
            found.setdefault((one.changes, one.quality), {})[one.label] = None
    return [
        Change(labels=tuple(labels), changes=changes, quality=quality)
        for (changes, quality), labels in found.items()
    ]


def _row(one: Prediction, is_priced: bool) -> tuple[str, ...]:
    price = NONE if one.price is None else price_text(one.price)
    return (
        one.label,
        str(one.num_workers),
        brief(one.step_s),
        figures(one.samples_per_s),
        NONE if one.total_s is None else duration_text(one.total_s),
        f"{one.speed_up:.2f}×",
        size(one.wire_bytes) if one.num_workers > 1 else NONE,
        size(one.peak_bytes) if one.peak_bytes else NONE,
        "exact" if one.exact else "relaxed",
        *((price,) if is_priced else ()),
        "measured" if one.is_measured else "",
    )


def _relaxed_lines(forecast: Forecast) -> list[str]:
    found = relaxed_changes(forecast)
    if not found:
        return []
    lines = ["What relaxed strategies change:"]
    for one in found:
        lines.append(f"  {', '.join(one.labels)}: {one.changes or 'not told'}")
        lines.append(f"    quality: {one.quality or 'nothing is known'}")
    return lines
