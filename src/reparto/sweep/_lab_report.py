"""Writes what shows a lab sweep into a folder: a page, a picture, the numbers, a table."""

from __future__ import annotations

import json
import os
import shlex
from html import escape
from pathlib import Path

from reparto._pages import COLOURS, document, html_table, swatch
from reparto.lab import rate_text
from reparto.spec import LabSweep, finite, to_plain
from reparto.sweep._lab_plots import colour_of_rate, lab_png, lab_svgs
from reparto.sweep._lab_sweep import cell_name
from reparto.sweep._lab_table import lab_header, lab_in_words, lab_rows
from reparto.sweep._table import aligned
from reparto.sweep._usage_plots import usage_colour, usage_png, usage_svg

_KINDS = {
    "kernel": "Network namespaces, rate limits and control groups of the kernel: real packets on "
    "limited links",
    "emulated": "Emulated by the workers' own groups, without root: results are held back as long "
    "as a line would take; CPU shares are not limited",
}


def write_lab(sweep: LabSweep, folder: Path) -> tuple[Path, ...]:
    """Write the page, the pictures, the numbers and the table.

    Returns:
        The files, the page first.
    """
    contents = {
        "sweep.html": lab_page(sweep).encode(),
        "sweep.png": lab_png(sweep),
        "sweep.json": json.dumps(finite(to_plain(sweep)), indent=2).encode(),
        "sweep.txt": ("\n".join(text_table(sweep)) + "\n").encode(),
    }
    busiest = max(sweep.cells, key=lambda cell: (cell.usage is not None, cell.nodes))
    if busiest.usage is not None:
        contents["usage.png"] = usage_png(busiest.usage)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return tuple(folder / name for name in contents)


def text_table(sweep: LabSweep) -> list[str]:
    """The table, and below it the words."""
    lines = aligned([lab_header(sweep), *lab_rows(sweep)], words={2, 3, 10})
    below = "  speed-up: over one node; loss: of training, smoothed; sent, waiting: of a node"
    return [*lines, below, *lab_in_words(sweep)]


def lab_page(sweep: LabSweep) -> str:
    """The page as HTML; it needs no other file and no network."""
    name = escape(os.path.basename(sweep.script))
    words = "".join(f'<p class="words">{escape(line)}</p>' for line in lab_in_words(sweep))
    notes = "".join(f"<li>{escape(note)}</li>" for note in sweep.notes)
    where = " · ".join(f"{key} {value}" for key, value in sweep.environment.items())
    return document(
        f"{name}: nodes and networks",
        f'<p class="quiet">{escape(_what(sweep))}</p>',
        f'<p class="quiet">{escape(_KINDS[sweep.kind])}.</p>',
        words,
        _legend(sweep),
        '<div class="plots">',
        *(
            f"<figure>{svg}</figure>"
            for index, label in enumerate(sweep.labels)
            for svg in lab_svgs(sweep, label, f"lab-{index}")
        ),
        "</div>",
        "<h2>In numbers</h2>",
        html_table(lab_header(sweep), [map(escape, row) for row in lab_rows(sweep)]),
        f'<ul class="notes">{notes}</ul>' if notes else "",
        "<h2>What the nodes were busy with</h2>",
        *_usages(sweep),
        f"<footer>{escape(f'Measured one after the other · {where}')}</footer>",
    )


def _what(sweep: LabSweep) -> str:
    told = [shlex.join([os.path.basename(sweep.script), *sweep.args]), f"seed {sweep.seed}"]
    if sweep.target is not None:
        told.append(f"each to a training loss of {sweep.target:g}, smoothed")
    if sweep.samples is not None:
        told.append(f"at most {sweep.samples} samples each")
    return " · ".join([*told, *([sweep.limits] if sweep.limits else [])])


def _legend(sweep: LabSweep) -> str:
    named = [
        swatch(colour_of_rate(sweep, rate), "not limited" if rate is None else rate_text(rate))
        for rate in sweep.rates
    ]
    items = "".join(f"<li>{one}</li>" for one in [*named, swatch(COLOURS[0], "one node")])
    return f'<ul class="legend">{items}</ul>'


def _usages(sweep: LabSweep) -> list[str]:
    """One fold a cell; the one with most nodes is open."""
    recorded = [cell for cell in sweep.cells if cell.usage is not None]
    widest = max((cell.nodes for cell in recorded), default=0)
    found, is_open = [], False
    for index, cell in enumerate(recorded):
        assert cell.usage is not None
        opened = " open" if cell.nodes == widest and not is_open else ""
        is_open = is_open or bool(opened)
        name = escape(cell_name(cell.nodes, cell.rate_bits_per_s, cell.label))
        named = "".join(
            f"<li>{swatch(usage_colour(place), host)}</li>"
            for place, host in enumerate(cell.usage.hosts)
        )
        drawn = usage_svg(cell.usage, f"usage-{index}")
        found.append(
            f'<details{opened}><summary>{name}</summary><ul class="legend">{named}</ul>'
            f'<figure style="max-width: 46rem">{drawn}</figure></details>'
        )
    return found
