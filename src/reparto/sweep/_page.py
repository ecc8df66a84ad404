"""A comparison as one HTML page: plots, table and notes, with nothing from elsewhere."""

from __future__ import annotations

import os
import shlex
from html import escape

from reparto._pages import colour_of, document, html_table, swatch
from reparto.spec import ComparedRun, Comparison
from reparto.sweep import _plots, _table
from reparto.sweep._curve import HORIZON_STEPS

_CAPTIONS = {
    "time": "By worker 0's clock, from the end of the first step.",
    "samples": "Exact strategies lie on one another, but for random masks: it is the same "
    "training.",
    "bytes": "Modelled on gloo's algorithms from what workers handed over; none travel where "
    "workers share memory, but as many would between machines.",
    "waiting": "Hatched: exchanging and waiting for others. What travels during the backward "
    "pass is not waited for.",
}


def page(comparison: Comparison) -> str:
    """The page as HTML; it needs no other file and no network."""
    name = escape(os.path.basename(comparison.script))
    words = _table.in_words(comparison)
    return document(
        f"{name}: strategies compared",
        f'<p class="quiet">{escape(_what(comparison))}</p>',
        f'<p class="words">{escape(words)}</p>' if words else "",
        _legend(comparison),
        '<div class="plots">',
        *(_figure(comparison, plot) for plot in _plots.PLOTS),
        "</div>",
        "<h2>In numbers</h2>",
        _told_table(comparison),
        _notes(comparison),
        f"<footer>{escape(_where(comparison))}</footer>",
    )


def _what(comparison: Comparison) -> str:
    command = shlex.join([os.path.basename(comparison.script), *comparison.args])
    told = [command, f"seed {comparison.seed}"]
    if comparison.target is not None:
        told.append(f"each to a loss of {comparison.target:g}")
    if comparison.samples is not None:
        most = "at most " if comparison.target is not None else ""
        told.append(f"{most}{comparison.samples} samples each")
    return " · ".join(told)


def _where(comparison: Comparison) -> str:
    told = " · ".join(f"{name} {value}" for name, value in comparison.environment.items())
    return (
        f"Measured one after the other · {told} · losses are of training, smoothed over about "
        f"{HORIZON_STEPS} steps; where replicas are apart, the mean of the workers' own estimates"
    )


def _legend(comparison: Comparison) -> str:
    items = (f"<li>{_named(run, i)}</li>" for i, run in enumerate(comparison.runs))
    return f'<ul class="legend">{"".join(items)}</ul>'


def _named(run: ComparedRun, index: int) -> str:
    return swatch(colour_of(index), run.label)


def _figure(comparison: Comparison, plot: str) -> str:
    drawn = _plots.svg(comparison, plot)
    return f"<figure>{drawn}<figcaption>{escape(_CAPTIONS[plot])}</figcaption></figure>"


def _told_table(comparison: Comparison) -> str:
    rows = zip(comparison.runs, _table.rows(comparison), strict=True)
    named = [(_named(run, index), *map(escape, row[1:])) for index, (run, row) in enumerate(rows)]
    return html_table(_table.header(), named)


def _notes(comparison: Comparison) -> str:
    """What runs had to tell besides; what several tell is told once."""
    told: dict[str, list[str]] = {}
    for run in comparison.runs:
        failure = run.result.failure
        failed = (f"{failure.error}: {failure.message}",) if failure is not None else ()
        for note in (*failed, *run.result.notes):
            told.setdefault(note, []).append(run.label)
    if not told:
        return ""
    items = (
        f"<li><strong>{escape(', '.join(labels))}</strong>: {escape(note)}</li>"
        for note, labels in told.items()
    )
    return f'<h2>Notes</h2><ul class="notes">{"".join(items)}</ul>'
