"""Figure: a picture of the report with its title, its names and how to read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from reparto._pages import COLOURS
from reparto.search._report._plot import shortened
from reparto.search._report._words import ENSEMBLE
from reparto.spec import SearchResult

#: Those that have no colour of their own, and what is given up.
GREY = COLOURS[0]
FAILED = "#d9534f"
_ENSEMBLE = "#c2185b"

#: Colour, name, shape.
Entry = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A picture, drawn.

    Attributes:
        title: Above it.
        svg: The picture, or several.
        caption: Below it: how it is to be read.
        entries: What its colours and shapes mean.
        is_wide: Whether it takes the whole width of the page.
    """

    title: str
    svg: str
    caption: str = ""
    entries: tuple[Entry, ...] = ()
    is_wide: bool = False

    def html(self) -> str:
        """As a part of the page."""
        items = "".join(f"<li>{_sign(*entry)}</li>" for entry in self.entries)
        names = f'<ul class="names">{items}</ul>' if items else ""
        caption = f"<figcaption>{escape(self.caption)}</figcaption>" if self.caption else ""
        wide = ' class="whole"' if self.is_wide else ""
        return (
            f"<figure{wide}><h3>{escape(self.title)}</h3>{names}"
            f'<div class="drawn">{self.svg}</div>{caption}</figure>'
        )


def colours_of(result: SearchResult) -> dict[str, str]:
    """A colour for each technique, the best first; those beyond nine are grey."""
    ranked = [one.candidate.technique for one in result.leaderboard]
    every = dict.fromkeys([*ranked, *(one.candidate.technique for one in result.evaluations)])
    found: dict[str, str] = {}
    plain = [kind for kind in every if kind != ENSEMBLE]
    for place, kind in enumerate(plain):
        found[kind] = COLOURS[1 + place] if place < len(COLOURS) - 1 else GREY
    if ENSEMBLE in every:
        found[ENSEMBLE] = _ENSEMBLE
    return found


def entries_of(colours: dict[str, str], kinds: Sequence[str]) -> tuple[Entry, ...]:
    """Names of these techniques; those without a colour of their own together."""
    own = [kind for kind in colours if kind in kinds and colours[kind] != GREY]
    others = [kind for kind in kinds if colours.get(kind, GREY) == GREY]
    named = [(colours[kind], shortened(kind, 40), "o") for kind in own]
    if others:
        named.append((GREY, f"{len(others)} more" if len(others) > 1 else others[0], "o"))
    return tuple(named)


_SHAPES = {
    "o": '<circle cx="7" cy="5" r="4" fill="{c}"/>',
    "ring": '<circle cx="7" cy="5" r="3.6" fill="none" stroke="{c}" stroke-width="1.5"/>',
    "square": '<rect x="3.5" y="1.5" width="7" height="7" fill="none" stroke="{c}" '
    'stroke-width="1.5"/>',
    "x": '<path d="M3.5 1.5l7 7m0 -7l-7 7" stroke="{c}" stroke-width="1.8"/>',
    "-": '<path d="M0 5H14" stroke="{c}" stroke-width="2"/>',
    "--": '<path d="M0 5H14" stroke="{c}" stroke-width="1.6" stroke-dasharray="4 3"/>',
    "bar": '<rect x="1" y="0" width="12" height="10" fill="{c}" fill-opacity=".85"/>',
    "pale": '<rect x="1" y="0" width="12" height="10" fill="{c}" fill-opacity=".22"/>',
}


def _sign(colour: str, label: str, shape: str) -> str:
    drawn = _SHAPES[shape].format(c=colour)
    return f'<svg viewBox="0 0 14 10" aria-hidden="true">{drawn}</svg>{escape(label)}'
