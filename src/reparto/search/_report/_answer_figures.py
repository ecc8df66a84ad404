"""Figures of answers beside truths: what the best candidate is right and wrong about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from reparto._pages import COLOURS
from reparto.search._report import _curves
from reparto.search._report._axis import Axis, axis_over
from reparto.search._report._figure import GREY, Figure
from reparto.search._report._plot import INK, Plot, shortened
from reparto.search._report._proof import Pair
from reparto.search._report._words import counted, number
from reparto.spec import TableFacts

BLUE, ORANGE, GREEN = COLOURS[1], COLOURS[2], COLOURS[3]
#: Classes of a confusion matrix; beyond them, those with the most wrong answers.
MOST_CLASSES = 20
#: So many have room for their names below the matrix; others are numbered.
FEW_CLASSES, SMALL = 8, 12
MOST_DOTS = 1200


def answer_figures(facts: TableFacts, pair: Pair) -> Iterator[Figure]:
    """Those that suit the domain."""
    if facts.is_classification:
        yield confusion(facts, pair)
        yield from _ranked(facts, pair)
        told = calibration(facts, pair)
        if told is not None:
            yield told
        if len(facts.classes) <= MOST_CLASSES:
            yield sureness(facts, pair)
    elif facts.domain == "regression":
        yield predicted(facts, pair)
        yield residuals(facts, pair)
        yield residuals_over(facts, pair)


def confusion(facts: TableFacts, pair: Pair) -> Figure:
    """What is true against what is answered."""
    found = _curves.confusion(pair, len(facts.classes), MOST_CLASSES)
    names = [facts.classes[number_] for number_ in found.classes]
    names += ["all others"] if found.has_others else []
    side = len(names)
    room = max(2, int(min(14, 50 / side)))
    is_numbered = side > FEW_CLASSES and max(map(len, names)) > room
    if is_numbered:
        names = [f"{name} · {place}" for place, name in enumerate(names, start=1)]
    across = tuple(
        (float(i), str(i + 1) if is_numbered else shortened(name, room))
        for i, name in enumerate(names)
    )
    up = tuple((float(-i), name) for i, name in enumerate(names))
    x = Axis(label="answered", low=-0.5, high=side - 0.5, ticks=across)
    y = Axis(label="true", low=-side + 0.5, high=0.5, ticks=up)
    plot = Plot("confusion matrix", x, y, width=520, height=60 + max(190, 24 * side), grid=False)
    totals = found.counts.sum(axis=1)
    for i in range(side):
        for j in range(side):
            count = int(found.counts[i, j])
            share = count / totals[i] if totals[i] else 0.0
            if not count:
                continue
            colour = BLUE if i == j else ORANGE
            title = f"{names[i]} taken for {names[j]}: {counted(count, 'row')}, {share:.1%}"
            plot.box((j - 0.48, j + 0.48), (-i - 0.48, -i + 0.48), colour,
                     opacity=0.08 + 0.72 * share, title=title)  # fmt: skip
            if side <= SMALL or count < 1000:
                small = 12 if side <= SMALL else 9
                plot.words(j, -i, str(count), anchor="middle", size=small)
    which = f"The {side - 1} classes with the most wrong answers. " if found.has_others else ""
    return Figure(
        title="Confusion matrix",
        svg=plot.svg(),
        caption=f"{which}Rows are what is true, columns what is answered; the darker, the more of "
        f"that row. {counted(len(pair.truth), 'row')}: {pair.where}.",
    )


def _ranked(facts: TableFacts, pair: Pair) -> Iterator[Figure]:
    if facts.domain != "binary" or len(facts.classes) != 2:
        return
    found = _curves.ranking(pair)
    if found is None:
        return
    unit = Axis(label="false positives: share of the other rows")
    plot = Plot("ROC curve", unit, Axis(label="recall"))
    plot.line([(0.0, 0.0), (1.0, 1.0)], GREY, width=1.2, dash="5 4")
    plot.line([(0.0, 0.0), *_pairs(found.false, found.hits)], BLUE, width=2.2)
    positive = facts.classes[1]
    yield Figure(
        title="ROC curve",
        svg=plot.svg(),
        caption=f"Of “{positive}”: how many are found, against how many others are taken for it. "
        "Dashed: by chance.",
    )
    plot = Plot("precision over recall", Axis(label="recall"), Axis(label="precision"))
    plot.across(found.share, GREY)
    plot.line([(0.0, found.precision[0]), *_pairs(found.hits, found.precision)], BLUE, width=2.2)
    yield Figure(
        title="Precision over recall",
        svg=plot.svg(),
        caption=f"Of “{positive}”. Dashed: its share of all rows, {100 * found.share:.3g} %, "
        "which is the precision by chance.",
    )


def calibration(facts: TableFacts, pair: Pair) -> Figure | None:
    """A reliability diagram; None where answers are no probabilities."""
    found = _curves.calibration(pair)
    if found is None:
        return None
    is_binary = len(facts.classes) == 2
    what = f"“{facts.classes[1]}”" if is_binary else "the answered class"
    plot = Plot("calibration", Axis(label=f"probability that is said, of {shortened(what, 24)}"),
                Axis(label="share where it is so"))  # fmt: skip
    most = max(1, int(found.counts.max()))
    for said, count in zip(found.said, found.counts, strict=True):
        low = min(0.9, np.floor(said * 10) / 10)
        plot.box((low + 0.008, low + 0.092), (0.0, 0.25 * count / most), GREY, opacity=0.35,
                 title=counted(int(count), "row"))  # fmt: skip
    plot.line([(0.0, 0.0), (1.0, 1.0)], GREY, width=1.2, dash="5 4")
    points = _pairs(found.said, found.true)
    plot.line(points, BLUE, width=2.0)
    titles = [f"said {said:.1%}, true {true:.1%}, {counted(int(count), 'row')}"
              for (said, true), count in zip(points, found.counts, strict=True)]  # fmt: skip
    plot.dots(points, BLUE, titles=titles, radius=4.5)
    return Figure(
        title="Calibration",
        svg=plot.svg(),
        caption=f"On the dashed line, what is said comes true as often. On average it is off by "
        f"{100 * found.error:.2g} percentage points (expected calibration error, ten bins). Grey: "
        "how many rows are in each bin.",
    )


def sureness(facts: TableFacts, pair: Pair) -> Figure:
    """Recall and precision of each class, side by side."""
    found = _curves.per_class(pair, len(facts.classes))
    ticks = tuple((-float(i), name) for i, name in enumerate(facts.classes))
    side = len(facts.classes)
    plot = Plot("precision and recall of each class", Axis(low=0.0, high=1.0),
                Axis(low=-side + 0.4, high=0.6, ticks=ticks), 
                height=44 + max(2, side) * 26)  # fmt: skip
    for place in range(side):
        for colour, value, what, shift in (
            (BLUE, found.recall[place], "recall", 0.2),
            (GREEN, found.precision[place], "precision", -0.2),
        ):
            if np.isfinite(value):
                plot.box((0.0, float(value)), (-place + shift - 0.17, -place + shift + 0.17),
                         colour, opacity=0.85, title=f"{what} {value:.3f}")  # fmt: skip
    return Figure(
        title="By class",
        svg=plot.svg(),
        caption="Recall: of its rows, those that are found. Precision: of those that are taken "
        "for it, its own.",
        entries=((BLUE, "recall", "bar"), (GREEN, "precision", "bar")),
    )


def predicted(facts: TableFacts, pair: Pair) -> Figure:
    """What is answered against what is true."""
    kept = _curves.sampled(len(pair.truth), MOST_DOTS)
    truth, said = _floats(pair.truth)[kept], _floats(pair.answer.values)[kept]
    axis = axis_over([*truth, *_inner(said)])
    name = shortened(facts.target or "the target", 30)
    x = Axis(label=f"{name}, true", low=axis.low, high=axis.high)
    y = Axis(label=f"{name}, answered", low=axis.low, high=axis.high)
    plot = Plot("answered against true", x, y, height=340)
    plot.dots(_pairs(truth, said), BLUE, radius=2.8, opacity=0.55)
    plot.line([(axis.low, axis.low), (axis.high, axis.high)], INK, width=1.2, dash="5 4")
    some = (
        f" {len(kept)} of {len(pair.truth)} rows are drawn." if len(kept) < len(pair.truth) else ""
    )
    return Figure(
        title="Answered against true",
        svg=plot.svg(),
        caption="On the dashed line, the answer is right. "
        f"{pair.where[0].upper()}{pair.where[1:]}.{some}",
    )


def residuals(facts: TableFacts, pair: Pair) -> Figure:
    """How far answers are off."""
    off = _floats(pair.answer.values) - _floats(pair.truth)
    counts, edges = _curves.histogram(off)
    x = Axis(label="answered − true", low=float(edges[0]), high=float(edges[-1]))
    plot = Plot("residuals", x, Axis(label="rows", low=0.0, high=1.06 * max(1, counts.max())))
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        gap = 0.04 * (high - low)
        span = f"{number(float(low))} to {number(float(high))}"
        plot.box((low + gap, high - gap), (0.0, float(count)), BLUE, opacity=0.8,
                 title=f"{span}: {counted(int(count), 'row')}")  # fmt: skip
    if x.low < 0 < x.high:
        plot.upright(0.0)
    half, most = np.quantile(np.abs(off), [0.5, 0.9])
    return Figure(
        title="Residuals",
        svg=plot.svg(),
        caption=f"Half of the answers are off by {number(float(half))} at most, 9 of 10 by "
        f"{number(float(most))}; on average {number(float(np.mean(off)))}. The outermost bars "
        "hold all that is farther off.",
    )


def residuals_over(facts: TableFacts, pair: Pair) -> Figure:
    """How far answers are off, against what is answered."""
    kept = _curves.sampled(len(pair.truth), MOST_DOTS)
    said = _floats(pair.answer.values)[kept]
    off = said - _floats(pair.truth)[kept]
    plot = Plot("residuals against answers", axis_over(_inner(said), "answered"),
                axis_over(_inner(off), "answered − true"), height=340)  # fmt: skip
    plot.dots(_pairs(said, off), BLUE, radius=2.8, opacity=0.55)
    plot.across(0.0)
    plot.line(_medians(said, off), ORANGE, width=2.2)
    return Figure(
        title="Residuals against answers",
        svg=plot.svg(),
        caption="Orange: the median of neighbours. Where it leaves the dashed line, answers are "
        "off to one side; where points fan out, some answers are surer than others.",
    )


def _medians(x: _curves.Floats, y: _curves.Floats) -> list[tuple[float, float]]:
    order = np.argsort(x, kind="stable")
    parts = [part for part in np.array_split(order, min(12, max(1, len(x) // 12))) if len(part)]
    return [(float(np.median(x[part])), float(np.median(y[part]))) for part in parts]


def _inner(values: _curves.Floats) -> list[float]:
    """Without the few that would press the others together; they are drawn at the edge."""
    if len(values) < 50:
        return [float(value) for value in values]
    low, high = np.quantile(values, [0.002, 0.998])
    return [float(low), float(high)]


def _floats(values: object) -> _curves.Floats:
    return np.asarray(values, dtype=np.float64)


def _pairs(
    x: Sequence[float] | _curves.Floats, y: Sequence[float] | _curves.Floats
) -> list[tuple[float, float]]:
    return [(float(a), float(b)) for a, b in zip(x, y, strict=True)]
