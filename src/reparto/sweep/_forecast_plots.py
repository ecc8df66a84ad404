"""The plots of a forecast: one step of each way as a timeline, and speed-up against workers.

diloco · 4    ████████▒▒░░░      what the worker does: computes, packs, waits
▄▄▄▄▄▄▄▄▄      what is under way meanwhile
all-reduce · 4 ██████░░░░░░░░
▄▄▄▄▄▄▄▄▄▄▄
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reparto._pages import COLOURS, as_png, as_svg, colour_of, ink_of
from reparto.spec import Forecast, Prediction, Span
from reparto.sweep._forecast_table import ranked, shown_ways, talked_of
from reparto.sweep._survey_table import brief

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TIMELINES = 10
MOST_LINES = len(COLOURS) - 1  # the first colour is for one machine
_CUT = 4.0  # steps longer than so many times the median are cut off: others would be dots

#: What parts of a step are called, with their colours.
SPANS: dict[str, tuple[str, str]] = {
    "compute": ("computing", COLOURS[1]),
    "pack": ("packing and unpacking", COLOURS[5]),
    "wait": ("waiting", COLOURS[0]),
    "communicate": ("on the wire", COLOURS[2]),
}

_WIDTH, _HEIGHT = 9.0, 4.2


def forecast_png(forecast: Forecast) -> bytes:
    """Both plots in one picture."""
    above, below = _timeline_height(forecast), _HEIGHT if line_colours(forecast) else 0.0

    def draw(figure: Figure) -> None:
        parts = figure.subfigures(2 if below else 1, 1, squeeze=False, height_ratios=heights)[:, 0]
        draw_timelines(parts[0].subplots(), forecast)
        parts[0].legend(loc="outside upper right", ncols=len(SPANS), frameon=False)
        if below:
            draw_speed_ups(parts[1].subplots(), forecast)
            parts[1].legend(loc="outside right center", frameon=False)

    heights = [above, below] if below else [above]
    return as_png(draw, _WIDTH, above + below)


def timeline_svg(forecast: Forecast) -> str:
    """The timelines, to be put into a page."""
    height = _timeline_height(forecast)
    return as_svg(
        lambda figure: draw_timelines(figure.subplots(), forecast), 10.5, height, "timeline"
    )


def speed_up_svg(forecast: Forecast) -> str:
    """Speed-up against workers, to be put into a page."""
    return as_svg(
        lambda figure: draw_speed_ups(figure.subplots(), forecast), 7.2, _HEIGHT, "speed-up"
    )


def draw_timelines(axes: Axes, forecast: Forecast) -> None:
    """One step of the best ways, one below the other."""
    ways = timeline_ways(forecast)
    steps = sorted(one.step_s for one in ways)
    end = min(steps[-1], max(_CUT * steps[len(steps) // 2], forecast.predictions[0].step_s))
    scale, unit = (1.0, "seconds") if end >= 1 else (1e3, "milliseconds")
    for row, one in enumerate(ways):
        for span in one.timeline:
            _draw_span(axes, row, span, scale, end)
        last = max([one.step_s, *(span.end_s for span in one.timeline)])
        where = scale * min(last, end), row
        told = f"… {brief(one.step_s)}" if last > end else brief(one.step_s)
        weight = "bold" if one is forecast.best else "normal"
        axes.annotate(told, where, (5, 0), textcoords="offset points", va="center", weight=weight)
    for what, (name, colour) in SPANS.items():
        axes.broken_barh([], (0, 0), **_look(what, colour), label=name)
    axes.set_title("One step, as predicted")
    axes.set_xlabel(unit)
    axes.set_xlim(0, 1.12 * scale * end)
    axes.set_ylim(len(ways) - 0.4, -0.6)
    axes.set_yticks(range(len(ways)), [name_of(one) for one in ways])
    axes.get_yticklabels()[ways.index(forecast.best)].set_fontweight("bold")
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=ink_of(axes), alpha=0.12, linewidth=0.6)
    axes.set_axisbelow(True)


def draw_speed_ups(axes: Axes, forecast: Forecast) -> None:
    """Times as fast as the plain script on one machine; a line a strategy."""
    most = 1.0
    for label, colour in line_colours(forecast).items():
        ways = [one for one in forecast.predictions if one.label == label]
        points = sorted({1: 1.0, **{one.num_workers: one.speed_up for one in ways}}.items())
        most = max(most, *(gain for _, gain in points))
        axes.plot(
            *zip(*points, strict=True), color=colour, marker="o", markersize=5, linewidth=2,
            linestyle="-" if ways[0].exact else (0, (4, 1.5)), label=label,
        )  # fmt: skip
    sizes = sorted({one.num_workers for one in forecast.predictions})
    axes.axhline(1, color=COLOURS[0], linewidth=1, linestyle=":")
    axes.plot(sizes, sizes, color=COLOURS[0], linewidth=1, linestyle="--")
    best = forecast.best
    axes.plot(
        best.num_workers, best.speed_up, marker="o", markersize=13, linestyle="",
        markerfacecolor="none", markeredgecolor=ink_of(axes), markeredgewidth=1.4,
    )  # fmt: skip
    if sizes[-1] > 32:
        axes.set_xscale("log", base=2)
    axes.set_title("Speed-up over one machine, as predicted")
    axes.set_xlabel("workers")
    axes.set_ylabel("times")
    axes.set_xticks(sizes, [str(one) for one in sizes])
    axes.set_ylim(0, 1.15 * most)
    axes.grid(color=ink_of(axes), alpha=0.12, linewidth=0.6)


def line_colours(forecast: Forecast) -> dict[str, str]:
    """Colours of the strategies of several workers, as many as there are; the fastest first."""
    labels = dict.fromkeys(one.label for one in ranked(forecast) if one.num_workers > 1)
    always = {one.label for one in talked_of(forecast)} & labels.keys()
    others = [label for label in labels if label not in always]
    kept = {*always, *others[: MOST_LINES - len(always)]}
    shown = (label for label in labels if label in kept)
    return {label: colour_of(1 + index) for index, label in enumerate(shown)}


def timeline_ways(forecast: Forecast) -> list[Prediction]:
    """Each strategy with the workers with which it is fastest, or was chosen; fastest first."""
    ways = {one.label: one for one in (*reversed(ranked(forecast)), forecast.best)}
    return shown_ways(forecast, MOST_TIMELINES, ways.values())


def name_of(one: Prediction) -> str:
    """A way as its timeline is called."""
    workers = "one machine" if one.num_workers == 1 else f"{one.num_workers} workers"
    return f"{one.label}\n{workers}"


def _draw_span(axes: Axes, row: int, span: Span, scale: float, end: float) -> None:
    under = span.what == "communicate"
    seen_s = max(0.0, min(span.end_s, end) - span.begin_s)
    axes.broken_barh(
        [(scale * span.begin_s, scale * seen_s)],
        (row + 0.14, 0.16) if under else (row - 0.3, 0.4),
        **_look(span.what, SPANS[span.what][1]),
    )


def _look(what: str, colour: str) -> dict[str, Any]:
    """Waiting is not drawn as if something was done."""
    if what == "wait":
        return {"facecolor": "none", "edgecolor": colour, "hatch": "////", "linewidth": 0.6}
    return {"facecolor": colour, "linewidth": 0}


def _timeline_height(forecast: Forecast) -> float:
    return 1.3 + 0.52 * len(timeline_ways(forecast))
