"""Figures of columns, clusters and functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from reparto._pages import COLOURS
from reparto.search._report._axis import Axis, axis_over
from reparto.search._report._figure import Figure
from reparto.search._report._plot import INK, Plot
from reparto.search._report._proof import Proof
from reparto.search._report._search_figures import reached, some
from reparto.search._report._standing import best_of
from reparto.search._report._words import counted, number
from reparto.spec import SearchResult

BLUE = COLOURS[1]
MOST_COLUMNS = 20
MOST_CLUSTERS = 30
#: Cells of a contour each way, and its levels.
CELLS, LEVELS = 56, 12


def importances(proof: Proof) -> Figure | None:
    """How much each column matters."""
    shown = [(name, value) for name, value in proof.importances if value > 0][:MOST_COLUMNS]
    if not shown:
        return None
    rows = [(name, 100 * value, f"{name}: {100 * value:.3g} %") for name, value in shown]
    left = len(proof.importances) - len(shown)
    more = f" {counted(left, 'column')} less important {'is' if left == 1 else 'are'} not shown."
    how = f"{proof.how[:1].upper()}{proof.how[1:]}; all together 100 %." if proof.how else ""
    return Figure(
        title="What matters",
        svg=_bars("importance of each column", rows, "%"),
        caption=f"{how}{more if left > 0 else ''} Columns that say the same divide it "
        "between them.",
    )


def clusters(proof: Proof, num_rows: int) -> Figure | None:
    """How many rows each cluster has."""
    if proof.clusters is None or not len(proof.clusters):
        return None
    names, counts = np.unique(proof.clusters, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_CLUSTERS]
    rows = [
        (f"cluster {int(names[i])}", float(counts[i]),
         f"{counted(int(counts[i]), 'row')}, {counts[i] / counts.sum():.1%}")
        for i in order
    ]  # fmt: skip
    left = len(names) - len(order)
    of = "of" if counts.sum() >= num_rows else "in a sample of"
    more = f" {left} smaller ones are not shown." if left else ""
    return Figure(
        title="Clusters",
        svg=_bars("rows of each cluster", rows, "rows"),
        caption=f"{counted(len(names), 'cluster')} {of} "
        f"{counted(int(counts.sum()), 'row')}.{more}",
    )


def contours(result: SearchResult) -> Iterator[Figure]:
    """Of a function of two arguments: its values, and where it was tried."""
    from reparto.search._function_work import FUNCTIONS

    best = best_of(result)
    if result.request.domain != "function" or best is None:
        return
    function = FUNCTIONS.get(best.candidate.technique)
    if function is None or len(function.space) != 2:
        return
    names = list(function.space)
    points = [
        (one, tuple(float(one.candidate.settings.get(name, math.nan)) for name in names))
        for one in some(result.evaluations, 800)
        if reached(one) is not None
    ]
    lows, highs = [], []
    for place, name in enumerate(names):
        seen = [at[place] for _, at in points if math.isfinite(at[place])]
        low = float(getattr(function.space[name], "low", min(seen)))
        high = float(getattr(function.space[name], "high", max(seen)))
        lows.append(min([low, *seen]))
        highs.append(max([high, *seen]))
    axes = [Axis(label=name, low=low, high=high)
            for name, low, high in zip(names, lows, highs, strict=True)]  # fmt: skip
    plot = Plot(
        f"contours of {function.kind}", axes[0], axes[1], width=560, height=420, grid=False
    )
    _heights(plot, function.of, names)
    titles = [f"#{one.candidate.number}: {number(reached(one))}" for one, _ in points]
    plot.dots([(at[0], at[1]) for _, at in points], INK, titles=titles, radius=2.6, opacity=0.8)
    where = [float(best.candidate.settings.get(name, math.nan)) for name in names]
    plot.dots([(where[0], where[1])], COLOURS[2], radius=6.5,
              titles=[f"the best: {number(best.score)}"])  # fmt: skip
    yield Figure(
        title=f"Where {function.kind} was tried",
        svg=plot.svg(),
        caption="The darker, the smaller its value; each level is a ratio, counted from the "
        "smallest value that there is.",
        entries=((COLOURS[2], "the best", "o"), (INK, "tried", "o")),
    )


def _heights(plot: Plot, of: object, names: list[str]) -> None:
    """Cells of the same level, side by side, are one box."""
    assert callable(of)
    xs = np.linspace(plot.x.low, plot.x.high, CELLS + 1)
    ys = np.linspace(plot.y.low, plot.y.high, CELLS + 1)
    middles = [[(a + b) / 2 for a, b in itertools.pairwise(each)] for each in (xs, ys)]
    values = np.array([[float(of(**{names[0]: x, names[1]: y})) for x in middles[0]]
                       for y in middles[1]])  # fmt: skip
    logs = np.log(values - values.min() + 0.02 * (np.median(values) - values.min()) + 1e-12)
    levels = np.floor(
        (LEVELS - 1e-9) * (logs - logs.min()) / max(1e-12, logs.max() - logs.min())
    ).astype(int)
    for row in range(CELLS):
        start = 0
        for cell in range(1, CELLS + 1):
            if cell < CELLS and levels[row, cell] == levels[row, start]:
                continue
            share = 1 - levels[row, start] / (LEVELS - 1)
            plot.box((xs[start], xs[cell]), (ys[row], ys[row + 1]), BLUE,
                     opacity=0.04 + 0.72 * share)  # fmt: skip
            start = cell


def _bars(name: str, rows: list[tuple[str, float, str]], label: str) -> str:
    most = max(value for _, value, _ in rows)
    ticks = tuple((-float(i), text) for i, (text, _, _) in enumerate(rows))
    x = axis_over([0.0, most], label, pad=0.0)
    x = Axis(label=label, low=0.0, high=1.18 * (x.high or 1.0))
    plot = Plot(name, x, Axis(low=-len(rows) + 0.4, high=0.6, ticks=ticks),
                height=58 + 20 * len(rows))  # fmt: skip
    for place, (_, value, title) in enumerate(rows):
        plot.box((0.0, value), (-place - 0.36, -place + 0.36), BLUE, opacity=0.85, title=title,
                 least=1.0)  # fmt: skip
        told = f"{value:.3g}" if label == "%" else f"{value:,.0f}".replace(",", " ")
        plot.words(value, -place, told, dx=4, size=10.5)
    return plot.svg()
