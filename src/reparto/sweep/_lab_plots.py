"""The plots of a lab sweep: time and speed-up against nodes; a line a rate, a row a strategy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reparto._pages import COLOURS, as_png, as_svg, colour_of, name_colours
from reparto.lab import rate_text
from reparto.spec import LabSweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _HEIGHT = 5.6, 3.7


def lab_png(sweep: LabSweep) -> bytes:
    """All plots in one picture."""

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(sweep.labels), 2, squeeze=False)
        for row, label in zip(grid, sweep.labels, strict=True):
            draw_times(row[0], sweep, label)
            draw_speed_ups(row[1], sweep, label)
        name_colours(figure)

    return as_png(draw, 2 * _WIDTH, _HEIGHT * len(sweep.labels) + 0.4)


def lab_svgs(sweep: LabSweep, label: str, name: str) -> tuple[str, str]:
    """The two plots of a strategy, to be put into a page."""
    return (
        as_svg(
            lambda figure: draw_times(figure.subplots(), sweep, label),
            _WIDTH, _HEIGHT, f"{name}-times",
        ),
        as_svg(
            lambda figure: draw_speed_ups(figure.subplots(), sweep, label),
            _WIDTH, _HEIGHT, f"{name}-speed",
        ),
    )  # fmt: skip


def colour_of_rate(sweep: LabSweep, rate: float | None) -> str:
    """The colour of a rate; the first is left to the one node."""
    return colour_of(1 + sweep.rates.index(rate))


def draw_times(axes: Axes, sweep: LabSweep, label: str) -> None:
    """Seconds against nodes."""
    to = f" to a loss of {sweep.target:g}" if sweep.target is not None else ""
    axes.set_title(f"{label}: training time{to}")
    alone = sweep.seconds(1, None, label)
    _draw_rates(axes, sweep, lambda nodes, rate: sweep.seconds(nodes, rate, label))
    if alone is not None:
        axes.axhline(alone, color=COLOURS[0], linewidth=1, linestyle=":")
    axes.set_ylabel("seconds")
    axes.set_ylim(bottom=0)


def draw_speed_ups(axes: Axes, sweep: LabSweep, label: str) -> None:
    """Times as fast as one node."""
    axes.set_title(f"{label}: speed-up over one node")
    _draw_rates(axes, sweep, lambda nodes, rate: sweep.speed_up(nodes, rate, label))
    axes.plot(
        sweep.sizes, sweep.sizes, color=COLOURS[0], linewidth=1, linestyle="--",
        label="as many times as nodes",
    )  # fmt: skip
    axes.axhline(1, color=COLOURS[0], linewidth=1, linestyle=":")
    axes.set_ylabel("times")
    axes.set_ylim(bottom=0)


def _draw_rates(
    axes: Axes, sweep: LabSweep, value: Callable[[int, float | None], float | None]
) -> None:
    """One line a rate, over the numbers of nodes that got there."""
    for rate in sweep.rates:
        points = [
            (nodes, found) for nodes in sweep.sizes if (found := value(nodes, rate)) is not None
        ]
        if points:
            axes.plot(
                *zip(*points, strict=True),
                color=colour_of_rate(sweep, rate),
                marker="o",
                linewidth=2,
                label="not limited" if rate is None else rate_text(rate),
            )
    if not axes.lines:
        axes.text(0.5, 0.5, "nothing got there", transform=axes.transAxes, ha="center")
    axes.set_xlabel("nodes")
    axes.set_xticks(sweep.sizes)
