"""How pages and pictures look: what every report of reparto is drawn and written with.

draw(Figure) ──► as_png ──► a picture that stands by itself
└─► as_svg ──► a part of a page ──► document ──► one HTML file
"""

from reparto._pages._drawing import (
    COLOURS,
    DECADES,
    as_png,
    as_svg,
    colour_of,
    ink_of,
    log_axis,
    name_colours,
    name_lines,
    require_matplotlib,
)
from reparto._pages._html import document, html_table, swatch

__all__ = [
    "COLOURS",
    "DECADES",
    "as_png",
    "as_svg",
    "colour_of",
    "document",
    "html_table",
    "ink_of",
    "log_axis",
    "name_colours",
    "name_lines",
    "require_matplotlib",
    "swatch",
]
