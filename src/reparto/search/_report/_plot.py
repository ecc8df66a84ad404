"""Plot: a picture as SVG, written by hand: a report has seconds, and matplotlib would take them.

Letters and axes have the colour of the text around them, in the light and in the dark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from reparto.search._report._axis import Axis

Point = tuple[float, float]
#: What is drawn in the colour of the text.
INK = "currentColor"
_LETTER = 7.4  # pixels of a letter, about
_WIDE, _NARROW = frozenset("<>mwMWQOG@%+=~_—&"), frozenset("iljtfIrJ.,:;'|!()[]/- ")
_GREY = "#7f8792"


class Plot:
    """A picture with two axes, into which things are put one over the other.

    Args:
        name: What it shows, for who cannot see it.
        x: To the right.
        y: Upward.
        width: Pixels at full size.
        height: Pixels at full size.
        grid: Whether lines are drawn at the values that are told.
    """

    def __init__(
        self,
        name: str,
        x: Axis,
        y: Axis,
        *,
        width: int = 500,
        height: int = 290,
        grid: bool = True,
    ) -> None:
        self.x, self.y, self._name, self._grid = x, y, name, grid
        self._width, self._height = width, height
        longest = max((_length(shortened(label, 26)) for _, label in y.told()), default=0.0)
        self._left = 12 + longest + (18 if y.label else 0)
        self._right, self._top = 14.0, 10.0
        self._bottom = 24.0 + (19 if x.label else 0)
        self._parts: list[str] = []

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom of what is within the axes, in pixels."""
        return self._left, self._top, self._width - self._right, self._height - self._bottom

    def px(self, value: float) -> float:
        """Where a value is, in pixels from the left."""
        left, _, right, _ = self.bounds
        return left + self.x.at(value) * (right - left)

    def py(self, value: float) -> float:
        """Where a value is, in pixels from above."""
        _, top, _, bottom = self.bounds
        return bottom - self.y.at(value) * (bottom - top)

    def line(
        self, points: Iterable[Point], colour: str, *, width: float = 1.8, dash: str = ""
    ) -> None:
        """Join points; one that is no number breaks the line."""
        path, is_down = [], False
        for x, y in points:
            if not (math.isfinite(x) and math.isfinite(y)):
                is_down = False
                continue
            path.append(f"{'L' if is_down else 'M'}{self.px(x):.1f} {self.py(y):.1f}")
            is_down = True
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<path d="{"".join(path)}" fill="none" stroke="{colour}" stroke-width="{width}"'
            f'{dashed} stroke-linejoin="round"/>'
        )

    def dots(
        self,
        points: Sequence[Point],
        colour: str,
        *,
        titles: Sequence[str] = (),
        shape: str = "o",
        radius: float = 3.5,
        opacity: float = 1.0,
    ) -> None:
        """Mark points: ``o``, ``ring``, ``x``, ``square``; a title shows under the pointer."""
        for place, (x, y) in enumerate(points):
            if not (math.isfinite(x) and math.isfinite(y)):
                continue
            title = f"<title>{escape(titles[place])}</title>" if titles else ""
            mark = _MARKS[shape].format(x=self.px(x), y=self.py(y), r=radius, d=2 * radius,
                                        a=self.px(x) - radius, b=self.py(y) - radius,
                                        c=colour, o=opacity)  # fmt: skip
            self._parts.append(f"{mark}{title}</{_TAGS[shape]}>")

    def box(
        self,
        across: Point,
        up: Point,
        colour: str,
        *,
        opacity: float = 1.0,
        title: str = "",
        least: float = 0.0,
    ) -> None:
        """Fill from one value to another, both ways, at least so many pixels wide."""
        left, right = sorted((self.px(across[0]), self.px(across[1])))
        top, bottom = sorted((self.py(up[0]), self.py(up[1])))
        told = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{max(right - left, least):.1f}" '
            f'height="{max(bottom - top, 0.0):.1f}" fill="{colour}" '
            f'fill-opacity="{opacity:.3g}">{told}</rect>'
        )

    def words(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "start",
        dx: float = 0.0,
        dy: float = 4.0,
        colour: str = INK,
        size: float = 12.0,
    ) -> None:
        """Write at a place, moved by so many pixels."""
        self._parts.append(
            f'<text x="{self.px(x) + dx:.1f}" y="{self.py(y) + dy:.1f}" text-anchor="{anchor}" '
            f'font-size="{size:g}" fill="{colour}">{escape(text)}</text>'
        )

    def across(self, y: float, colour: str = INK, *, dash: str = "5 4", label: str = "") -> None:
        """A line from the left to the right."""
        self.line([(self.x.low, y), (self.x.high, y)], colour, width=1.3, dash=dash)
        if label:
            dy = 13 if self.y.at(y) > 0.9 else -5
            self.words(self.x.high, y, label, anchor="end", dx=-3, dy=dy, size=11, colour=colour)

    def upright(self, x: float, colour: str = INK, *, dash: str = "5 4", label: str = "") -> None:
        """A line from the foot to the top."""
        self.line([(x, self.y.low), (x, self.y.high)], colour, width=1.3, dash=dash)
        if label:
            is_right = self.x.at(x) > 0.6
            self.words(x, self.y.high, label, anchor="end" if is_right else "start",
                       dx=-5 if is_right else 5, dy=10, size=11, colour=colour)  # fmt: skip

    def svg(self) -> str:
        """The picture."""
        return (
            f'<svg viewBox="0 0 {self._width} {self._height}" role="img" font-size="12" '
            f'aria-label="{escape(self._name)}">{self._axes()}{"".join(self._parts)}</svg>'
        )

    def _axes(self) -> str:
        left, top, right, bottom = self.bounds
        parts = []
        for value, label in self.x.told(max(2, round((right - left) / 75))):
            x = self.px(value)
            parts.append(_rule(x, top, x, bottom) if self._grid else "")
            parts.append(_text(x, bottom + 16, label, "middle"))
        for value, label in self.y.told(max(2, round((bottom - top) / 38))):
            y = self.py(value)
            parts.append(_rule(left, y, right, y) if self._grid else "")
            parts.append(_text(left - 6, y + 4, shortened(label, 26), "end", whole=label))
        parts.append(
            f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}" fill="none" '
            f'stroke="{INK}" stroke-opacity=".45"/>'
        )
        if self.x.label:
            middle = (left + right) / 2
            parts.append(_text(middle, self._height - 6, self.x.label, "middle", quiet=True))
        if self.y.label:
            middle = (top + bottom) / 2
            parts.append(
                f'<g transform="translate(13 {middle:.1f}) rotate(-90)">'
                f"{_text(0, 0, self.y.label, 'middle', quiet=True)}</g>"
            )
        return "".join(parts)


def _length(text: str) -> float:
    """Pixels, about; fonts differ."""
    each = (1.4 if one in _WIDE else 0.65 if one in _NARROW else 1.0 for one in text)
    return _LETTER * sum(each)


def shortened(text: str, most: int) -> str:
    """Text that has at most so many letters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{INK}" stroke-opacity=".12"/>'


def _text(
    x: float, y: float, text: str, anchor: str, *, quiet: bool = False, whole: str = ""
) -> str:
    faint = ' fill-opacity=".75"' if quiet else ""
    told = f"<title>{escape(whole)}</title>" if whole and whole != text else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{INK}"{faint}>'
        f"{told}{escape(text)}</text>"
    )


_MARKS = {
    "o": '<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="{c}" fill-opacity="{o:.3g}">',
    "ring": '<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" fill="none" stroke="{c}" '
    'stroke-width="1.3" stroke-opacity="{o:.3g}">',
    "x": '<path d="M{a:.1f} {b:.1f}l{d} {d}m0 -{d}l-{d} {d}" stroke="{c}" stroke-width="1.6">',
    "square": '<rect x="{a:.1f}" y="{b:.1f}" width="{d}" height="{d}" fill="none" stroke="{c}" '
    'stroke-width="1.3" stroke-opacity="{o:.3g}">',
}
_TAGS = {"o": "circle", "ring": "circle", "x": "path", "square": "rect"}
