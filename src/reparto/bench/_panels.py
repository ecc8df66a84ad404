"""Panels of a figure: lines of rows on logarithmic axes, with what is wrong with a row marked.

●──●──●     sound rows, joined
△       a flagged row stands alone, by its mark
✕          a failed one lies at the foot of the panel: it has no time
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reparto._pages import as_png, as_svg, ink_of, log_axis, name_lines
from reparto.bench._shown import FLAGS, is_sound, mark_of
from reparto.spec import Flag, Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: What is called so, and looks so.
Entry = tuple[str, dict[str, Any]]
Reading = Callable[[Measurement], float | None]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A figure, before it is drawn.

    Attributes:
        name: Of its files, and within a page.
        title: Above it.
        caption: Below it: how it is to be read.
        width: Inches.
        height: Inches.
        entries: What its lines are called.
        marks: Flags of the rows in it.
        draw: Puts it on a figure.
    """

    name: str
    title: str
    caption: str
    width: float
    height: float
    entries: tuple[Entry, ...]
    marks: tuple[Flag, ...]
    draw: Callable[[Figure], None]

    def svg(self) -> str:
        """As a part of a page, which itself tells the title and the names."""
        return as_svg(self.draw, self.width, self.height, self.name)

    def png(self) -> bytes:
        """As a picture that stands by itself."""
        entries = [*self.entries, *(mark_entry(flag) for flag in self.marks)]
        lines = -(-len(entries) // 5)

        def draw(figure: Figure) -> None:
            self.draw(figure)
            figure.suptitle(self.title, fontweight="bold", fontsize=13)
            if entries:
                name_lines(figure, entries)

        return as_png(draw, max(self.width, 7.0), self.height + 0.5 + 0.3 * lines)


def line_look(colour: str, style: str = "-") -> dict[str, Any]:
    """A line with points."""
    return {"color": colour, "linestyle": style, "marker": "o", "markersize": 4, "linewidth": 1.6}


def mark_entry(flag: Flag) -> Entry:
    """A flag, as the list of names tells it."""
    look = {"color": "#7f8792", "linestyle": "", "markerfacecolor": "none", "markersize": 7}
    return flag.replace("-", " "), {**look, "marker": FLAGS[flag][0]}


def marks_of(rows: Sequence[Measurement]) -> tuple[Flag, ...]:
    """Flags by which some of these rows are marked."""
    found = {mark_of(row) for row in rows}
    return tuple(flag for flag in FLAGS if flag in found)


def panels(
    figure: Figure, titles: Sequence[str], columns: int, across: str, up: str
) -> list[Axes]:
    """A panel a title, row by row, all with one scale upward; places left over stay empty.

    Args:
        figure: Empty.
        titles: Of the panels.
        columns: Panels of a row.
        across: What the lowest panels say below them.
        up: What the first of each row says beside it.
    """
    rows = -(-len(titles) // columns)
    every = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
    for axes in every[len(titles) :]:
        axes.set_visible(False)
    for place, (axes, title) in enumerate(zip(every, titles, strict=False)):
        axes.set_title(title, fontsize=9.5, loc="left")
        axes.tick_params(labelsize=8.5)
        if place + columns >= len(titles):
            axes.set_xlabel(across, fontsize=9.5)
        if place % columns == 0:
            axes.set_ylabel(up, fontsize=9.5)
    return every[: len(titles)]


def draw_rows(
    axes: Axes,
    rows: Sequence[Measurement],
    across: Reading,
    up: Reading,
    look: dict[str, Any],
    place: int = 0,
) -> None:
    """One way's rows: a line through the sound ones, a mark for each other.

    Args:
        axes: The panel; both axes become logarithmic afterwards (`finish`).
        rows: In any order.
        across: Where a row stands.
        up: Its number; None leaves it out of the line.
        look: Of the line.
        place: Of the way among all: marks of failed rows stand above one another.
    """
    ordered = sorted(rows, key=lambda row: across(row) or 0)
    heights = [(is_sound(row) and up(row)) or math.nan for row in ordered]  # elsewhere, a break
    axes.plot([across(row) or math.nan for row in ordered], heights, **look)
    for row in ordered:
        mark, x = mark_of(row), across(row)
        if mark is None or not x:
            continue
        shape = {"marker": FLAGS[mark][0], "color": look["color"], "markerfacecolor": "none"}
        y = up(row)
        if not y:
            foot = axes.get_xaxis_transform()
            axes.plot(x, 0.04 + 0.07 * place, **shape, markersize=6, transform=foot, clip_on=False)
            continue
        axes.plot(x, y, **shape, markersize=8.5, markeredgewidth=1.4, linestyle="")
        if mark == "noisy" and row.step_s and row.low_s and row.high_s:
            low, high = y * row.low_s / row.step_s, y * row.high_s / row.step_s
            axes.plot([x, x], [low, high], color=look["color"], linewidth=1.2)


def finish(
    axes: Axes,
    tell_x: Callable[[float], str],
    tell_y: Callable[[float], str],
    ticks: Sequence[float] = (),
) -> None:
    """Logarithmic axes, once everything is drawn; if there are `ticks`, across just these."""
    axes.grid(color=ink_of(axes), alpha=0.12, linewidth=0.6)
    axes.set_axisbelow(True)
    log_axis(axes, "y", tell_y)
    log_axis(axes, "x", tell_x)
    if ticks:
        told = _apart(ticks)
        axes.set_xticks(ticks, [tell_x(tick) if tick in told else "" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_xlim(ticks[0] / 1.35, ticks[-1] * 1.35)


def _apart(ticks: Sequence[float]) -> list[float]:
    """The first, the last, and of the others those with room to be written in a narrow panel."""
    kept = [ticks[0]]
    for tick in ticks[1:-1]:
        if tick >= 3.5 * kept[-1] and 3.5 * tick <= ticks[-1]:
            kept.append(tick)
    return [*kept, ticks[-1]]


def time_tick(number: float) -> str:
    """A time beside an axis.

    Example:
        >>> time_tick(2e-4), time_tick(0.05), time_tick(100), time_tick(1000)
        ('200 µs', '50 ms', '100 s', '1000 s')
    """
    for scale, unit in ((1e6, "µs"), (1e3, "ms")):
        if number * scale < 999.5:
            return f"{number * scale:.3g} {unit}"
    return f"{number:.3g} s" if number < 999.5 else f"{number:.0f} s"


def count_tick(number: float) -> str:
    """A number of things beside an axis.

    Example:
        >>> count_tick(2601), count_tick(444_817), count_tick(1e6), count_tick(50)
        ('2.6k', '445k', '1M', '50')
    """
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 0.9995 * scale:
            return f"{number / scale:.3g}{unit}"
    return f"{number:.3g}"
