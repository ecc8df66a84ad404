"""Writes what shows a forecast into a folder: a page, a picture, the numbers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from reparto._pages import document, html_table, swatch
from reparto.spec import Forecast, finite, to_plain
from reparto.sweep._forecast_plots import (
    SPANS,
    forecast_png,
    line_colours,
    speed_up_svg,
    timeline_svg,
)
from reparto.sweep._forecast_table import (
    ARROW,
    forecast_header,
    forecast_rows,
    ranked,
    relaxed_changes,
    what_script,
)
from reparto.sweep._survey_table import fact_cells, host_cells, link_cells, slice_cells
from reparto.sweep._table import seconds

FORECAST_PAGE, FORECAST_PICTURE = "forecast.html", "forecast.png"
FORECAST_NUMBERS = "forecast.json"

_STEP = (
    "The slowest worker's step, with as many workers as are best: above what it does itself "
    "(hatched: waiting), below what is under way meanwhile. In bold what was chosen."
)
_GAIN = (
    "Dashed lines: relaxed strategies, which change the mathematics. Grey: as many times as "
    "workers (dashed), one machine (dotted). In the circle what was chosen."
)


def write_forecast(forecast: Forecast, folder: Path) -> tuple[Path, ...]:
    """Write the page, the picture and the numbers; call `prepare` before measuring.

    Returns:
        The files, the page first.
    """
    contents = {
        FORECAST_PAGE: forecast_page(forecast).encode(),
        FORECAST_PICTURE: forecast_png(forecast),
        FORECAST_NUMBERS: json.dumps(finite(to_plain(forecast)), indent=2).encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return tuple(folder / name for name in contents)


def forecast_page(forecast: Forecast) -> str:
    """The page as HTML; it needs no other file and no network."""
    survey = forecast.survey
    facts = " · ".join(f"{name} {value}" for name, value in fact_cells(survey))
    links = link_cells(survey)
    where = (f"{key} {value}" for key, value in survey.environment.items())
    measured = " · ".join([f"Measured in {seconds(survey.took_s)}", *where])
    assumed = f"Assumed instead of measured: {forecast.what_if}" if forecast.what_if else ""
    return document(
        f"{escape(os.path.basename(survey.script))}: ways to run it",
        f'<p class="quiet">{escape(what_script(survey))}</p>',
        f'<p class="words">{escape(forecast.why)}</p>',
        f"<p>{escape(assumed)}</p>" if assumed else "",
        "<h2>What a step would look like</h2>",
        _figure(timeline_svg(forecast), _STEP, {name: colour for name, colour in SPANS.values()}),
        *_gain(forecast),
        "<h2>In numbers, the fastest first</h2>",
        _ways(forecast),
        _relaxed(forecast),
        "<h2>What was measured of the script</h2>",
        f'<p class="quiet">{escape(facts)}</p>',
        _cells(slice_cells(survey)),
        "<h2>What was measured of the hosts</h2>",
        '<div class="plots">',
        *(_cells(cells) for cells in (host_cells(survey), links) if cells),
        "</div>",
        _list("Notes", map(escape, survey.notes)),
        f"<footer>{escape(measured)}</footer>",
    )


def _gain(forecast: Forecast) -> list[str]:
    """Speed-up against workers, where there are ways of several."""
    drawn = line_colours(forecast)
    if not drawn:
        return []
    left = len({one.label for one in forecast.predictions if one.num_workers > 1} - drawn.keys())
    more = f" {left} more are left out." if left else ""
    figure = _figure(speed_up_svg(forecast), _GAIN + more, drawn, most="50rem")
    return ["<h2>What more workers would bring</h2>", figure]


def _figure(svg: str, caption: str, colours: dict[str, str], most: str = "none") -> str:
    named = "".join(f"<li>{swatch(colour, name)}</li>" for name, colour in colours.items())
    return (
        f'<figure style="max-width: {most}"><ul class="legend" style="margin-top: 0">{named}</ul>'
        f"{svg}<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _ways(forecast: Forecast) -> str:
    ways = ranked(forecast)
    rows = []
    for one, row in zip(ways, forecast_rows(forecast, ways), strict=True):
        cells = [escape(cell) for cell in row]
        if one is forecast.best:
            cells = [f"<strong>{cell}</strong>" for cell in (f"{ARROW} {cells[0]}", *cells[1:])]
        rows.append(cells)
    return html_table(forecast_header(forecast), rows, kind="figures")


def _relaxed(forecast: Forecast) -> str:
    told = (
        f"<strong>{escape(', '.join(one.labels))}</strong>: {escape(one.changes)}. "
        f"Quality: {escape(one.quality or 'nothing is known')}"
        for one in relaxed_changes(forecast)
    )
    return _list("What relaxed strategies change", told)


def _cells(cells: Sequence[Sequence[str]]) -> str:
    header, *rows = cells
    return html_table(header, [map(escape, row) for row in rows], kind="figures")


def _list(title: str, items: Iterable[str]) -> str:
    """A list under its title; nothing without items, which are HTML."""
    told = "".join(f"<li>{item}</li>" for item in items)
    return f'<h2>{title}</h2><ul class="notes">{told}</ul>' if told else ""
