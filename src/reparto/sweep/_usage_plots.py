"""The plots of a recording, one above the other on one axis of time; one colour a host.

    ┌ CPU     ┐   dotted: what the host has
    ├ memory  ┤
    ├ GPU     ┤   only if there is one
    ├ network ┤   sent; dashed: received
    └ seconds ┘

What happens at one time stands in one column.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from reparto._pages import as_png, as_svg, colour_of, ink_of, name_colours
from reparto.spec import Recording, UsageSample
from reparto.sweep._table import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _PANEL = 7.2, 1.9  # inches
_NEAR = 4.0  # a limit is drawn where it is less than so many times what was used
_LIMIT = {"linewidth": 1.0, "linestyle": (0, (1, 2)), "alpha": 0.8}


def usage_png(recording: Recording) -> bytes:
    """All plots in one picture."""

    def draw(figure: Figure) -> None:
        _draw(figure, recording)
        name_colours(figure)

    return as_png(draw, _WIDTH, _height(recording) + 0.4)


def usage_svg(recording: Recording, name: str) -> str:
    """All plots in one drawing, for a page on which no other has that name."""
    return as_svg(lambda figure: _draw(figure, recording), _WIDTH, _height(recording), name)


def usage_colour(index: int) -> str:
    """The colour of a host, by its place in the recording; grey is for baselines."""
    return colour_of(index + 1)


def draw_cpu(axes: Axes, recording: Recording) -> None:
    """Cores' worth of time."""
    axes.set_title("CPU")
    axes.set_ylabel("cores")
    _draw_lines(axes, recording, lambda one: one.cpu_cores)
    _draw_limits(axes, recording, lambda one: one.cpu_limit_cores)


def draw_memory(axes: Axes, recording: Recording) -> None:
    """Memory in use."""
    axes.set_title("Memory")
    _draw_lines(axes, recording, lambda one: one.memory_bytes)
    _draw_limits(axes, recording, lambda one: one.memory_limit_bytes)
    _say_bytes(axes)


def draw_gpu(axes: Axes, recording: Recording) -> None:
    """How busy GPUs are."""
    axes.set_title("GPU")
    axes.set_ylabel("per cent busy")
    _draw_lines(axes, recording, lambda one: _percent(one.gpu_share))
    axes.set_ylim(0, 105)


def draw_network(axes: Axes, recording: Recording) -> None:
    """Bytes a second, sent and received."""
    over = ", over lo: inside the machine" if recording.over_loopback else ""
    ways = "sent" if recording.over_loopback else "sent; dashed: received"
    axes.set_title(f"Network{over}")
    axes.set_ylabel("a second")
    axes.text(1, 1.02, ways, ha="right", va="bottom", transform=axes.transAxes, alpha=0.7)
    for index, samples in enumerate(recording.hosts.values()):
        times = [one.time_s for one in samples]
        carried = [recording.traffic(one) for one in samples]
        for way, style in ((0, "-"), (1, (0, (4, 2)))):
            if way == 1 and recording.over_loopback:
                continue  # what is sent there is received there
            rates = _rates([one[way] for one in carried], samples)
            axes.plot(times, rates, color=usage_colour(index), linestyle=style, linewidth=1.4)
    _from_zero(axes)
    _say_bytes(axes)


Panel = Callable[["Axes", Recording], None]


def panels(recording: Recording) -> list[Panel]:
    """What there is to draw, from top to bottom."""
    samples = itertools.chain.from_iterable(recording.hosts.values())
    has_gpu = any(one.gpu_share is not None for one in samples)
    return [draw_cpu, draw_memory, *([draw_gpu] if has_gpu else []), draw_network]


def _height(recording: Recording) -> float:
    return _PANEL * len(panels(recording)) + 0.3


def _draw(figure: Figure, recording: Recording) -> None:
    drawn = panels(recording)
    column = figure.subplots(len(drawn), 1, sharex=True)
    for axes, draw in zip(column, drawn, strict=True):
        draw(axes, recording)
        axes.grid(color=ink_of(axes), alpha=0.12, linewidth=0.6)
        axes.locator_params(axis="y", nbins=4)
    column[-1].set_xlabel("seconds since the script began")
    column[-1].set_xlim(left=0)


def _draw_lines(
    axes: Axes, recording: Recording, value: Callable[[UsageSample], float | None]
) -> None:
    for index, (host, samples) in enumerate(recording.hosts.items()):
        times, values = [one.time_s for one in samples], [value(one) for one in samples]
        known = [math.nan if one is None else one for one in values]
        axes.plot(times, known, color=usage_colour(index), linewidth=1.6, label=host)
    _from_zero(axes)


def _draw_limits(
    axes: Axes, recording: Recording, limit: Callable[[UsageSample], float | None]
) -> None:
    """Mark what hosts have, unless they are so far from it that their lines would lie flat."""
    _, top = axes.get_ylim()
    for index, samples in enumerate(recording.hosts.values()):
        has = limit(samples[-1])
        if has is not None and has < _NEAR * top:
            axes.axhline(has, color=usage_colour(index), **_LIMIT)  # type: ignore[arg-type]
            axes.set_ylim(top=max(axes.get_ylim()[1], 1.08 * has))


def _rates(counts: Sequence[int | None], samples: Sequence[UsageSample]) -> list[float]:
    """Bytes a second in each interval, of bytes since the first one began."""
    before = (0, *counts[:-1])
    return [
        math.nan if was is None or now is None else (now - was) / one.interval_s
        for was, now, one in zip(before, counts, samples, strict=True)
    ]


def _from_zero(axes: Axes) -> None:
    """Begin at 0, and leave some room above what is level."""
    most = axes.dataLim.ymax
    axes.set_ylim(0, 1.08 * most if 0 < most < math.inf else 1.0)  # where nothing is known, 1


def _say_bytes(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(lambda number, _: re.sub(r"\.0+ ", " ", size(number)))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share
