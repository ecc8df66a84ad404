"""Drawing for pages and pictures; the only place that imports matplotlib.

As a picture (PNG) a figure stands by itself; for a page it is an SVG whose lines and letters take
the colour of the text around it, in the light and in the dark.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from reparto.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Neither pale nor dark: they are seen on white and on black. The first is for the baseline.
COLOURS = (
    *("#7f8792", "#2f83d1", "#dd6b3d", "#2a9d6f", "#a35fcb"),
    *("#c08a00", "#d4548f", "#2f9aa8", "#8a6d4b", "#6b74d6"),
)
DECADES = 30.0  # a range wider than this is drawn on a logarithmic axis
_INK = "#010203"  # stands for the colour of the text, until the page is made

_RC = {
    "svg.fonttype": "none",  # letters stay letters, in the page's own font
    "text.parse_math": False,  # a label may have dollars
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11.0,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlepad": 10.0,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.1,
}


def require_matplotlib() -> None:
    """Make sure that plots can be drawn, before runs are made that would be for nothing.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "compare") from error


def colour_of(index: int) -> str:
    """The colour of whatever has this place in a page; the first is for the baseline."""
    return COLOURS[index % len(COLOURS)]


def as_png(draw: Callable[[Figure], None], width: float, height: float) -> bytes:
    """A picture of so many inches, that stands by itself."""
    with _figure(width, height, "#1f2328") as figure:
        draw(figure)
        return _saved(figure, "png", dpi=150, facecolor="white")


def as_svg(draw: Callable[[Figure], None], width: float, height: float, name: str) -> str:
    """A drawing of so many inches, to be put into a page on which no other has that name."""
    with _figure(width, height, _INK) as figure:
        draw(figure)
        return _inline(_saved(figure, "svg", transparent=True).decode(), name)


def name_colours(figure: Figure) -> None:
    """Say above all plots which colour is whose; a page does that by itself."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside upper center", ncols=min(len(labels), 4), frameon=False
    )


def log_axis(axes: Axes, which: Literal["x", "y"], tell: Callable[[float], str]) -> None:
    """A logarithmic axis whose numbers are told; more of them where it spans little."""
    from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set_xscale("log") if which == "x" else axes.set_yscale("log")
    low, high = axis.get_view_interval()
    decades = math.log10(high / low) if low > 0 and high > low else 0.0
    subs = (1.0,) if decades > 2 else (1.0, 3.0) if decades > 1 else (1.0, 2.0, 5.0)
    axis.set_major_locator(LogLocator(subs=subs, numticks=7 if decades > 2 else 12))
    if decades < 0.3:  # there may be no such number within
        axis.set_major_locator(FixedLocator([low * (high / low) ** part for part in (0.1, 0.9)]))
    axis.set_major_formatter(lambda number, _: tell(number))
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(which="minor", length=0)


def name_lines(figure: Figure, entries: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Say below all plots what lines and markers mean: what each is called, and its look."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], label=label, **look) for label, look in entries]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(len(handles), 5), frameon=False
    )


def ink_of(axes: Axes) -> Any:
    """The colour of the text, for whatever is drawn in it."""
    return axes.title.get_color()


@contextlib.contextmanager
def _figure(width: float, height: float, ink: str) -> Iterator[Figure]:
    """A figure without pyplot, which would keep it; all is set back afterwards."""
    import matplotlib
    from matplotlib.figure import Figure

    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor")
    colours = dict.fromkeys((*inked, "xtick.color", "ytick.color"), ink)
    settings: Any = {**_RC, **colours}
    with matplotlib.rc_context(settings):
        yield Figure(figsize=(width, height), layout="constrained")


def _saved(figure: Figure, form: str, **how: Any) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format=form, **how)
    return stream.getvalue()


def _inline(document: str, name: str) -> str:
    """An SVG document as a part of a page: its own names, no address of another site."""
    text = document[document.index("<svg") :]
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    text = re.sub(
        r'(<svg)[^>]*?(viewBox="[^"]*")[^>]*>',
        rf'\1 \2 role="img" aria-label="{name}">',
        text,
        count=1,
    )
    return text.replace(_INK, "currentColor").strip()
