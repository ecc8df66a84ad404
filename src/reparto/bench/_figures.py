"""The figures of a report, as they are to be drawn.

batch-*    time of an epoch, and of a step, against batch: a panel a model, a line a way
size       time of a step against parameters: a panel a way and batch, a line a depth
width      the same against the width of the first hidden layer
devices-*  time on one device over time on another against parameters: a line a batch
latency    of a call against its samples: a panel a model, with p99 and the deadline
peak       share of the device's measured peak against parameters
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reparto._pages import COLOURS, ink_of
from reparto.bench._crossover import Ratio, crossover, device_pairs, ratios
from reparto.bench._panels import (
    Drawing,
    Entry,
    Reading,
    count_tick,
    draw_rows,
    finish,
    line_look,
    marks_of,
    panels,
    time_tick,
)
from reparto.bench._shown import (
    SUSPECT,
    Group,
    Way,
    groups_of,
    is_sound,
    labels_of,
    look_of,
    some_of,
    way_of,
    ways_of,
)
from reparto.spec import BenchReport, Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BATCHES = 3  # panels of small, middle and large ones tell the tale
MOST_LATENCIES = 6
MOST_LINES = 8
_COLUMNS = 5
_PANEL, _WIDE, _TALL = 2.75, 4.5, 2.3  # inches

_BY_DEPTH = "One line a depth. Perceptrons only."
_ONE_COLOUR = "One colour a device and way of using it."


def drawings(report: BenchReport, deadline_s: float) -> list[Drawing]:
    """Every figure for which there are rows."""
    known = [row for row in report.measurements if row.work.batch_rows]  # not of every script
    train = [row for row in known if row.mode == "train"]
    infer = [row for row in known if row.mode == "infer"]
    found: list[Drawing | None] = [
        _against_size(train, "size", "parameters", lambda row: row.work.num_parameters),
        _against_size(
            train, "width", "width of the first hidden layer",
            lambda row: row.hidden[0] if row.hidden else None,
        ),
        *(_devices(train, pair) for pair in device_pairs(train)),
        _latency(infer, deadline_s),
        _peak(train),
    ]  # fmt: skip
    for group in groups_of(train):
        found.append(_against_batch(train, group, "epoch", lambda row: row.epoch_s))
        found.append(_against_batch(train, group, "step", lambda row: row.step_s))
    return [one for one in found if one is not None]


def _against_batch(
    rows: Sequence[Measurement], group: Group, what: str, up: Reading
) -> Drawing | None:
    """A panel a model: how long an epoch, or a step, takes with which batch."""
    shown = [row for row in rows if row.work.model in group.models]
    ways, entries = _lines(rows)
    batches = sorted({row.work.batch_rows for row in shown})
    if not any(up(row) for row in shown):
        return None

    def draw(figure: Figure) -> None:
        every = panels(figure, titles, columns, "batch, samples", f"{article} {what}")
        for axes, model in zip(every, group.models, strict=True):
            for place, way in enumerate(ways):
                own = [row for row in shown if row.work.model == model and way_of(row) == way]
                draw_rows(axes, own, _batch_of, up, entries[place][1], place)
            finish(axes, _whole, time_tick, batches)

    article = "an" if what == "epoch" else "a"
    titles = [_title(rows, one) for one in group.models]
    columns = min(_COLUMNS, len(group.models))
    return Drawing(
        name=f"batch-{what}-{group.name}",
        title=f"{article.capitalize()} {what} against batch: {group.title}",
        caption=f"One panel a model, named by its widths, with its parameters. {_ONE_COLOUR}",
        **_size(len(group.models), columns, _PANEL if columns > 2 else _WIDE),
        entries=tuple(entries),
        marks=marks_of(shown),
        draw=draw,
    )


def _against_size(
    rows: Sequence[Measurement], name: str, label: str, across: Reading
) -> Drawing | None:
    """A panel a way and batch: how long a step of which model takes."""
    shown = [row for row in rows if row.hidden]
    batches = some_of((row.work.batch_rows for row in shown), MOST_BATCHES)
    ways, labels = ways_of(shown), labels_of(ways_of(rows))
    depths = sorted({len(row.hidden) for row in shown})
    if not any(row.step_s for row in shown):
        return None
    entries = [
        (f"{depth} hidden layer{'s' if depth > 1 else ''}", line_look(COLOURS[1 + depth % 9]))
        for depth in depths
    ]
    cells = [(way, batch) for way in ways for batch in batches]

    def draw(figure: Figure) -> None:
        titles = [f"{labels[way]}, batch {batch}" for way, batch in cells]
        for axes, (way, batch) in zip(
            panels(figure, titles, len(batches), label, "a step"), cells, strict=True
        ):
            for place, depth in enumerate(depths):
                own = [
                    row
                    for row in shown
                    if (way_of(row), row.work.batch_rows, len(row.hidden)) == (way, batch, depth)
                ]
                draw_rows(axes, own, across, lambda row: row.step_s, entries[place][1], place)
            finish(axes, count_tick, time_tick)

    return Drawing(
        name=name,
        title=f"A step against {label}, by depth",
        caption=f"{_BY_DEPTH} One panel a device, way and batch; all have the same scale of time.",
        **_size(len(cells), len(batches), _WIDE),
        entries=tuple(entries),
        marks=marks_of([row for row in shown if row.work.batch_rows in batches]),
        draw=draw,
    )


def _devices(rows: Sequence[Measurement], pair: tuple[str, str]) -> Drawing | None:
    """How many times as long a model takes on one device as on another."""
    batches = sorted({row.work.batch_rows for row in rows})
    lines = {batch: ratios(rows, pair, batch) for batch in some_of(batches, MOST_LINES)}
    lines = {batch: found for batch, found in lines.items() if found}
    if not lines:
        return None
    looks = {batch: line_look(*look_of(place)) for place, batch in enumerate(lines)}

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for batch, found in lines.items():
            _draw_ratios(axes, found, looks[batch])
            where = crossover(found)
            if where is not None:
                axes.plot(where, 1, marker="o", markersize=10, color=ink_of(axes),
                          markerfacecolor=looks[batch]["color"], zorder=5)  # fmt: skip
        axes.axhline(1, color=ink_of(axes), linewidth=1)
        finish(axes, count_tick, lambda number: f"{number:g}×")
        axes.set_xlabel("parameters")
        axes.set_ylabel(f"time on {pair[0]} ÷ time on {pair[1]}")
        _name_sides(axes, pair)

    return Drawing(
        name=f"devices-{pair[0]}-{pair[1]}".replace(":", "-"),
        title=f"{pair[0]} against {pair[1]}",
        caption=f"Above the line {pair[1]} is faster, below it {pair[0]}; each in its fastest way "
        "of the same precision where there is one. The large points are the crossovers of the "
        "perceptrons. Crosses: one of the two rows is flagged, so that they cannot be compared.",
        width=9.6,
        height=4.6,
        entries=(*((f"batch {batch}", looks[batch]) for batch in lines), *_others_entry(rows)),
        marks=(),
        draw=draw,
    )


def _latency(rows: Sequence[Measurement], deadline_s: float) -> Drawing | None:
    """A panel a model: how long a call takes, half of them and 99 of 100."""
    sizes: dict[str, int] = {row.work.model: row.work.num_parameters for row in rows}
    ordered = sorted(sizes, key=lambda model: sizes[model])
    models = [ordered[place] for place in some_of(range(len(ordered)), MOST_LATENCIES)]
    shown = [row for row in rows if row.work.model in models]
    samples = sorted({_samples_of(row) for row in shown})
    ways, entries = _lines(rows)
    if not any(row.step_s for row in shown):
        return None

    def draw(figure: Figure) -> None:
        every = panels(figure, titles, columns, "samples of a call", "a call")
        for axes, model in zip(every, models, strict=True):
            for place, way in enumerate(ways):
                own = [row for row in shown if row.work.model == model and way_of(row) == way]
                look = entries[place][1]
                draw_rows(axes, own, _samples_of, lambda row: row.step_s, look, place)
                slow = sorted((_samples_of(row), _late(row)) for row in own)
                late = {**look, "marker": "", "linestyle": (0, (1, 1.5)), "linewidth": 1.3}
                axes.plot([x for x, _ in slow], [y for _, y in slow], **late)
            axes.axhline(deadline_s, color=SUSPECT, linewidth=1.2)
            finish(axes, _whole, time_tick, samples)

    titles = [_title(rows, one) for one in models]
    columns = min(3, len(models))
    return Drawing(
        name="latency",
        title="Inference: time of a call against its samples",
        caption=f"With points: half of the calls take no longer (p50). Dotted: 99 of 100 take no "
        f"longer (p99). Red: the deadline, {time_tick(deadline_s)}. {_ONE_COLOUR}",
        **_size(len(models), columns, _WIDE),
        entries=(*entries, ("deadline", {"color": SUSPECT, "linewidth": 1.2})),
        marks=marks_of(shown),
        draw=draw,
    )


def _peak(rows: Sequence[Measurement]) -> Drawing | None:
    """A panel a batch: which share of what the device can do a step makes use of."""
    shown = [row for row in rows if row.share_of_peak]
    batches = some_of((row.work.batch_rows for row in shown), MOST_BATCHES)
    ways, entries = _lines(rows)
    if not shown:
        return None

    def draw(figure: Figure) -> None:
        titles = [f"batch {batch}" for batch in batches]
        for axes, batch in zip(
            panels(figure, titles, len(batches), "parameters", "of the measured peak"),
            batches,
            strict=True,
        ):
            for place, way in enumerate(ways):
                own = [row for row in shown if row.work.batch_rows == batch and way_of(row) == way]
                for part, look in _apart(own, entries[place][1]):
                    draw_rows(axes, part, _parameters_of, _share_of, look, place)
            axes.axhline(1, color=ink_of(axes), linewidth=0.8, linestyle=":")
            finish(axes, count_tick, lambda number: f"{100 * number:.3g} %")

    return Drawing(
        name="peak",
        title="Share of the device's peak",
        caption="Counted multiplications and additions a second, over what the device reached in "
        f"a large product of matrices before the measurements. {_ONE_COLOUR}",
        **_size(len(batches), len(batches), _WIDE),
        entries=(*entries, *_others_entry(shown)),
        marks=marks_of([row for row in shown if row.work.batch_rows in batches]),
        draw=draw,
    )


def _apart(
    rows: Sequence[Measurement], look: dict[str, Any]
) -> list[tuple[list[Measurement], dict[str, Any]]]:
    """Perceptrons, joined by a line; others, which do other work a parameter, as stars."""
    stars = {**look, "linestyle": "", "marker": "*", "markersize": 9}
    return [
        ([row for row in rows if row.hidden], look),
        ([r for r in rows if not r.hidden], stars),
    ]


def _others_entry(rows: Sequence[Measurement]) -> tuple[Entry, ...]:
    """The stars' name: that of the only other model, or none in particular."""
    others = {row.work.model for row in rows if not row.hidden}
    if not others:
        return ()
    look = {"color": COLOURS[0], "linestyle": "", "marker": "*", "markersize": 9}
    return ((others.pop() if len(others) == 1 else "other models", look),)


def _lines(rows: Sequence[Measurement]) -> tuple[tuple[Way, ...], list[Entry]]:
    """Ways, and what their lines are called and look like: the same in all figures of a mode."""
    ways = ways_of(rows)
    labels = labels_of(ways)
    return ways, [(labels[way], line_look(*look_of(place))) for place, way in enumerate(ways)]


def _title(rows: Sequence[Measurement], model: str) -> str:
    most = max(row.work.num_parameters for row in rows if row.work.model == model)
    return f"{model} ({count_tick(most)})"


def _size(num_panels: int, columns: int, width: float) -> dict[str, float]:
    rows = -(-num_panels // columns)
    return {"width": 0.6 + width * columns, "height": 0.6 + _TALL * rows}


def _draw_ratios(axes: Axes, found: Sequence[Ratio], look: dict[str, Any]) -> None:
    """A line through perceptrons; other models stand alone, with other work a parameter."""
    line = [one for one in found if one.perceptron]
    heights = [one.times if one.sound else math.nan for one in line]
    axes.plot([one.num_parameters for one in line], heights, **look)
    for one in found:
        if one.perceptron and one.sound:
            continue
        marker = {"marker": "*", "markersize": 10} if one.sound else {"marker": "X"}
        axes.plot(one.num_parameters, one.times, **{**look, **marker, "linestyle": ""})


def _name_sides(axes: Axes, pair: tuple[str, str]) -> None:
    """Say which device is the faster on which side of the line."""
    above: dict[str, Any] = {"x": 0.01, "y": 0.98, "ha": "left", "va": "top"}
    below: dict[str, Any] = {"x": 0.99, "y": 0.02, "ha": "right", "va": "bottom"}
    for who, where in ((pair[1], above), (pair[0], below)):
        axes.text(s=f"{who} is faster", transform=axes.transAxes, fontsize=9, **where)


def _batch_of(row: Measurement) -> float:
    return row.work.batch_rows


def _parameters_of(row: Measurement) -> float:
    return row.work.num_parameters


def _share_of(row: Measurement) -> float | None:
    return row.share_of_peak


def _late(row: Measurement) -> float:
    return (is_sound(row) and row.p99_s) or math.nan  # elsewhere, a break


def _samples_of(row: Measurement) -> int:
    return row.work.num_samples or row.work.batch_rows  # what failed has had no samples


def _whole(number: float) -> str:
    return f"{number:.0f}"
