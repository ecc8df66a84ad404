"""The four plots of a comparison.

┌ loss against time ┐ ┌ loss against samples ┐    one colour a strategy, the same in all four;
└───────────────────┘ └──────────────────────┘    earlier lines are wider, so that exact
┌ bytes a worker    ┐ ┌ waiting, computing   ┐    strategies, which lie on one another, are
└───────────────────┘ └──────────────────────┘    all seen

As a picture (PNG) they stand in one figure; on a page each is one of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeGuard

from reparto._pages import DECADES, as_png, as_svg, colour_of, ink_of, name_colours
from reparto.spec import ComparedRun, Comparison, Waypoint
from reparto.sweep._table import NONE, seconds, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def png(comparison: Comparison) -> bytes:
    """All four plots in one picture."""

    def draw_all(figure: Figure) -> None:
        for axes, draw in zip(figure.subplots(2, 2).flat, PLOTS.values(), strict=True):
            draw(axes, comparison)
        name_colours(figure)

    return as_png(draw_all, 11.5, 2 * _height(comparison))


def svg(comparison: Comparison, name: str) -> str:
    """One of `PLOTS`, to be put into a page."""
    draw = PLOTS[name]
    height = _height(comparison)
    return as_svg(lambda figure: draw(figure.subplots(), comparison), 5.6, height, name)


def _height(comparison: Comparison) -> float:
    """Inches for as many bars as there are runs."""
    return max(3.7, 1.2 + 0.42 * len(comparison.runs))


def draw_time(axes: Axes, comparison: Comparison) -> None:
    """Loss against time."""
    axes.set_title("Loss against time")
    axes.set_xlabel("seconds of training")
    _draw_losses(axes, comparison, lambda run, point: run.time_to(point))


def draw_samples(axes: Axes, comparison: Comparison) -> None:
    """Loss against samples."""
    axes.set_title("Loss against samples")
    axes.set_xlabel("samples")
    if any(run.last is not None and run.last.samples for run in comparison.runs):
        _draw_losses(axes, comparison, lambda run, point: float(point.samples))
    else:
        told = "how many samples a step has used is not known"
        axes.text(0.5, 0.5, told, ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()


def draw_bytes(axes: Axes, comparison: Comparison) -> None:
    """Bytes that a worker has sent: to the target where it was reached, else to the end."""
    axes.set_title("Bytes sent by a worker")
    if comparison.target is not None:
        axes.set_xlabel(f"to a loss of {comparison.target:g}, or to the end")
    points = [run.reached or run.last for run in comparison.runs]
    sent = [0.0 if point is None else point.wire_bytes for point in points]
    some = [number for number in sent if number > 0]
    is_wide = bool(some) and max(some) / min(some) > DECADES
    if is_wide:
        axes.set_xscale("log")
        axes.set_xlim(10**-0.5 * min(some), max(some) * 8)
    else:
        axes.set_xlim(0, max(some, default=1.0) * 1.3)
        axes.locator_params(axis="x", nbins=5)
    axes.barh(range(len(sent)), sent, color=_colours(comparison), height=0.62)
    told = [NONE if point is None else size(point.wire_bytes) for point in points]
    _label_bars(axes, sent, told)
    axes.xaxis.set_minor_formatter("")
    axes.xaxis.set_major_formatter(lambda number, _: re.sub(r"\.0+ ", " ", size(number)))
    _name_bars(axes, comparison.runs)


def draw_waiting(axes: Axes, comparison: Comparison) -> None:
    """Waiting against computing."""
    axes.set_title("Waiting against computing")
    axes.set_xlabel("seconds of training")
    runs = comparison.runs
    waiting = [run.waiting_s for run in runs]
    computing = [max(run.training_s - run.waiting_s, 0.0) for run in runs]
    colours = _colours(comparison)
    axes.barh(range(len(runs)), computing, color=colours, height=0.62)
    axes.barh(
        range(len(runs)), waiting, left=computing, height=0.62,
        facecolor="none", edgecolor=colours, hatch="////", linewidth=0.8,
    )  # fmt: skip
    axes.set_xlim(0, max((run.training_s for run in runs), default=0.0) * 1.42 or 1.0)
    told = [f"{seconds(run.waiting_s)} waiting" if run.curve else NONE for run in runs]
    _label_bars(axes, [run.training_s for run in runs], told)
    _name_bars(axes, runs)


#: In the order in which they are shown.
PLOTS: dict[str, Callable[[Axes, Comparison], None]] = {
    "time": draw_time,
    "samples": draw_samples,
    "bytes": draw_bytes,
    "waiting": draw_waiting,
}


def _draw_losses(
    axes: Axes, comparison: Comparison, where: Callable[[ComparedRun, Waypoint], float]
) -> None:
    axes.set_ylabel("training loss, smoothed")
    num_runs = len(comparison.runs)
    for index, run in enumerate(comparison.runs):
        points = [(where(run, p), p.trend) for p in run.curve if _is_number(p.trend)]
        axes.plot(
            [place for place, _ in points],
            [trend for _, trend in points],
            color=colour_of(index),
            linewidth=1.5 + 2.5 * (num_runs - 1 - index) / max(num_runs - 1, 1),
            label=run.label,
            solid_capstyle="round",
        )
        if run.reached is not None and run.reached.trend is not None:
            spot = where(run, run.reached), run.reached.trend
            axes.plot(*spot, marker="o", markersize=7, color=colour_of(index))
    if comparison.target is not None:
        axes.axhline(comparison.target, color=ink_of(axes), linewidth=0.8, linestyle=(0, (2, 3)))
    trends = [p.trend for run in comparison.runs for p in run.curve if _is_number(p.trend)]
    if trends and min(trends) > 0 and max(trends) / min(trends) > DECADES:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    axes.grid(color=ink_of(axes), alpha=0.12, linewidth=0.6)
    axes.set_xlim(left=0)


def _is_number(trend: float | None) -> TypeGuard[float]:
    return trend is not None and math.isfinite(trend)  # a run may diverge


def _label_bars(axes: Axes, lengths: Sequence[float], told: Sequence[str]) -> None:
    left, _ = axes.get_xlim()  # a bar without length begins and ends there
    for index, (length, text) in enumerate(zip(lengths, told, strict=True)):
        where = max(length, left), index
        axes.annotate(text, where, (4, 0), textcoords="offset points", va="center")


def _name_bars(axes: Axes, runs: Sequence[ComparedRun]) -> None:
    axes.set_yticks(range(len(runs)), [run.label.replace(" ", "\n") for run in runs])
    axes.tick_params(axis="y", length=0)
    axes.invert_yaxis()  # in the order of the table
    axes.grid(axis="x", color=ink_of(axes), alpha=0.12, linewidth=0.6)
    axes.set_axisbelow(True)


def _colours(comparison: Comparison) -> list[str]:
    return [colour_of(index) for index in range(len(comparison.runs))]
