"""Writes what shows a recording into a folder: a page, a picture, the numbers."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from reparto._pages import document, html_table, swatch
from reparto.spec import Recording, to_json
from reparto.sweep._usage_plots import usage_colour, usage_png, usage_svg
from reparto.sweep._usage_table import usage_cells

USAGE_PAGE, USAGE_PICTURE, USAGE_NUMBERS = "usage.html", "usage.png", "usage.json"

_CAPTION = (
    "Dotted: what the host has. Memory is without what the system can give back at once. A host "
    "whose control group is limited (a container), or that is one of the lab's, is told apart "
    "from its machine; others are whole machines, with all that runs on them."
)


def write_usage(recording: Recording, folder: Path, script: str) -> tuple[Path, ...]:
    """Write the page, the picture and the numbers; call `prepare` before the run.

    Args:
        recording: Of at least one host.
        folder: Where to.
        script: What was run.

    Returns:
        The files, the page first.
    """
    contents = {
        USAGE_PAGE: usage_page(recording, script).encode(),
        USAGE_PICTURE: usage_png(recording),
        USAGE_NUMBERS: to_json(recording).encode(),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return tuple(folder / name for name in contents)


def usage_page(recording: Recording, script: str) -> str:
    """The page as HTML; it needs no other file and no network."""
    named = [swatch(usage_colour(index), host) for index, host in enumerate(recording.hosts)]
    header, *rows = usage_cells(recording)
    told = [(name, *map(escape, row[1:])) for name, row in zip(named, rows, strict=True)]
    return document(
        f"{escape(os.path.basename(script))}: what its hosts were busy with",
        f'<ul class="legend">{"".join(f"<li>{name}</li>" for name in named)}</ul>',
        '<figure style="max-width: 50rem">',
        f"{usage_svg(recording, 'usage')}<figcaption>{_CAPTION}</figcaption></figure>",
        "<h2>In numbers</h2>",
        html_table(header, told, kind="figures"),
    )
