"""Figures of the search itself: its history, its techniques, their settings, its workers."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

from reparto.search._report._axis import Axis, axis_over, time_axis
from reparto.search._report._figure import FAILED, GREY, Entry, Figure, colours_of, entries_of
from reparto.search._report._plot import INK, Plot, shortened
from reparto.search._report._standing import best_of
from reparto.search._report._words import (
    ENSEMBLE,
    is_better,
    label_of,
    number,
    plus_minus,
    seconds,
    settings_of,
    value_of,
)
from reparto.spec import Evaluation, SearchResult

MOST_DOTS = 1500
MOST_TECHNIQUES = 20
MOST_PANELS = 12
MOST_WORKERS = 24
_ROW = 22  # pixels


def reached(one: Evaluation) -> float | None:
    """A score: its own; of one that was given up, what it had reached."""
    score = one.score
    if score is None and one.rungs:
        whole = [it.score for it in one.rungs if it.rung.share >= 1.0]
        score = statistics.fmean(whole) if whole else one.rungs[-1].score
    return score if score is not None and math.isfinite(score) else None


def score_axis(result: SearchResult, scores: Sequence[float], *, label: str = "") -> Axis:
    """An axis for scores, on which hopeless ones do not press the good ones together."""
    found = sorted(scores, reverse=result.higher_is_better)
    kept = found[: max(8, math.ceil(0.6 * len(found)))]
    rest = found[len(kept) :]
    if kept and rest:
        room = 1.2 * abs(kept[-1] - kept[0])
        kept += [one for one in rest if abs(one - kept[0]) <= room + 1e-12]
    return axis_over(kept, label)


def some(evaluations: Sequence[Evaluation], most: int = MOST_DOTS) -> list[Evaluation]:
    """At most so many of them, evenly."""
    step = max(1, math.ceil(len(evaluations) / most))
    return list(evaluations[::step])


def history(result: SearchResult) -> Figure | None:
    """Each candidate's score when it ended, and the best so far."""
    ended = sorted(result.evaluations, key=lambda one: one.ended_s)
    known = [(one, score) for one in ended if (score := reached(one)) is not None]
    if not ended:
        return None
    scores = [score for _, score in known]
    x, by = time_axis(max(result.took_s, max(one.ended_s for one in ended)))
    plot = Plot("score of each candidate when it ended", x,
                score_axis(result, scores, label=label_of(result.metric)),
                width=1080, height=340)  # fmt: skip
    colours = colours_of(result)
    if result.baseline is not None and plot.y.has(result.baseline):
        plot.across(result.baseline, GREY, label="best constant answer")
    _best_so_far(plot, result, ended, by)
    entries: list[Entry] = [(INK, "best so far", "-")]
    shown = some([one for one, _ in known])
    foot = plot.y.low + 0.035 * (plot.y.high - plot.y.low)  # above those that failed
    kinds = [one.candidate.technique for one in shown]
    for one in shown:
        colour = colours[one.candidate.technique]
        point = (one.ended_s / by, max(reached(one) or 0.0, foot))
        plot.dots([point], colour, titles=[_told(one)],
                  shape=_SHAPE_OF.get(one.status, "o"),
                  radius=4 if one.status == "done" else 2.8)  # fmt: skip
    for one in some([one for one in ended if one.status == "failed"], 200):
        plot.dots([(one.ended_s / by, plot.y.low)], FAILED, titles=[_told(one)], shape="x")
    statuses = {one.status for one in ended}
    names = (("pruned", "given up", "ring", GREY), ("stopped", "stopped", "square", GREY),
             ("failed", "failed, at the foot", "x", FAILED))  # fmt: skip
    entries += [(colour, text, shape) for name, text, shape, colour in names if name in statuses]
    beyond = "Scores beyond an edge are drawn at it. " if _is_beyond(plot.y, scores) else ""
    return Figure(
        title="History",
        svg=plot.svg(),
        caption=f"{beyond}{_PARTLY if statuses & {'pruned', 'stopped'} else ''}",
        entries=(*entries, *entries_of(colours, kinds)),
        is_wide=True,
    )


_PARTLY = (
    "A candidate that was given up, or stopped, is drawn with what it had reached on fewer folds, "
    "or with less training, which is not to be held against others."
)
_SHAPE_OF = {"done": "o", "pruned": "ring", "stopped": "square"}


def _best_so_far(plot: Plot, result: SearchResult, ended: Sequence[Evaluation], by: float) -> None:
    points: list[tuple[float, float]] = []
    for one in ended:
        if one.score is None or not math.isfinite(one.score):
            continue
        if not points or is_better(one.score, points[-1][1], result):
            if points:
                points.append((one.ended_s / by, points[-1][1]))
            points.append((one.ended_s / by, one.score))
    if points:
        points.append((plot.x.high, points[-1][1]))
        plot.line(points, INK, width=1.6)


def _told(one: Evaluation) -> str:
    score = f"{plus_minus(one)}" if one.score is not None else one.status
    told = f"#{one.candidate.number} {one.candidate.technique}: {score}"
    text = f"{told}\n{settings_of(one.candidate)}\n{seconds(one.busy_s)}"
    return shortened(f"{text}\n{one.failure}" if one.failure else text, 400)


def _is_beyond(axis: Axis, scores: Sequence[float]) -> bool:
    return any(not axis.has(score) for score in scores)


_MEAN = "The point is the mean over folds, the line the standard deviation of these."


def techniques(result: SearchResult) -> Figure | None:
    """The best of each technique, with its spread."""
    best: dict[str, Evaluation] = {}
    for one in result.leaderboard:
        best.setdefault(one.candidate.technique, one)
    if len(best) < 2:
        return None
    shown = list(best.values())[:MOST_TECHNIQUES]
    scores = [one.score or 0.0 for one in shown]
    edges = [score + sign * (one.spread or 0.0)
             for one, score in zip(shown, scores, strict=True) for sign in (-1, 1)]  # fmt: skip
    inner = scores[: max(6, math.ceil(0.7 * len(scores)))]  # hopeless ones would press the rest
    axis = axis_over(edges[: 2 * len(inner)], label_of(result.metric))
    counts: dict[str, int] = {}
    for one in result.evaluations:
        counts[one.candidate.technique] = counts.get(one.candidate.technique, 0) + 1
    colours = colours_of(result)
    ticks = tuple(
        (-float(place), shortened(kind, 26)) for place, kind in enumerate(list(best)[:len(shown)])
    )  # fmt: skip
    rows = Axis(low=-len(shown) + 0.4, high=0.6, ticks=ticks)
    plot = Plot("best of each technique", axis, rows, height=58 + _ROW * len(shown))
    is_shown = result.baseline is not None and plot.x.has(result.baseline)
    if is_shown and result.baseline is not None:
        plot.upright(result.baseline, GREY)
    for place, one in enumerate(shown):
        colour, score = colours[one.candidate.technique], one.score or 0.0
        if one.spread:
            plot.line([(score - one.spread, -place), (score + one.spread, -place)], colour,
                      width=2.4)  # fmt: skip
        count = counts[one.candidate.technique]
        title = f"{_told(one)}\nthe best of {count}"
        plot.dots([(score, -place)], colour, titles=[title], radius=5)
    left = len(best) - len(shown)
    more = f" {left} more are in the leaderboard." if left else ""
    dashed = " Dashed: the best constant answer." if is_shown else ""
    return Figure(
        title="Best of each technique",
        svg=plot.svg(),
        caption=f"{_MEAN if result.num_folds > 1 else 'On a single split.'}{dashed}{more}",
    )


def settings(result: SearchResult) -> Figure | None:
    """Score against each setting, of the technique that is best."""
    kind = _best_technique(result)
    own = [one for one in result.evaluations
           if one.candidate.technique == kind and reached(one) is not None]  # fmt: skip
    if kind is None or len(own) < 3:
        return None
    own = some(own, 400)
    scores = [reached(one) or 0.0 for one in own]
    names = list(dict.fromkeys(name for one in own for name in one.candidate.settings))
    varied = [name for name in names
              if len({repr(one.candidate.settings.get(name)) for one in own}) > 1]  # fmt: skip
    if not varied:
        return None
    y = score_axis(result, scores, label=label_of(result.metric))
    panels = [_panel(own, scores, name, y, result) for name in varied[:MOST_PANELS]]
    drawn = "".join(f"<div>{one}</div>" for one in panels)
    left = len(varied) - len(panels)
    more = f" {left} more settings varied." if left > 0 else ""
    return Figure(
        title=f"Settings of {kind}",
        svg=f'<div class="panels">{drawn}</div>',
        caption="One panel a setting, one point a candidate; hollow: given up or stopped; the "
        f"best is ringed. A setting that was left alone is drawn as “default”.{more}",
        is_wide=True,
    )


def _best_technique(result: SearchResult) -> str | None:
    best = best_of(result)
    if best is not None and best.candidate.technique != ENSEMBLE:
        return best.candidate.technique
    kinds = (one.candidate.technique for one in result.leaderboard)
    return next((kind for kind in kinds if kind != ENSEMBLE), None)


def _panel(
    own: Sequence[Evaluation], scores: Sequence[float], name: str, y: Axis, result: SearchResult
) -> str:
    values = [one.candidate.settings.get(name) for one in own]
    places, x = _places(values, name)
    plot = Plot(f"score against {name}", x, y, width=330, height=210)
    colours = colours_of(result)
    for one, place, score in zip(own, places, scores, strict=True):
        colour = colours[one.candidate.technique]
        shape = _SHAPE_OF.get(one.status, "ring")
        plot.dots([(place, score)], colour, titles=[_told(one)], shape=shape, opacity=0.75)
        if one.candidate.number == result.best:
            plot.dots([(place, score)], INK, shape="ring", radius=6.5)
    return plot.svg()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _places(values: Sequence[Any], name: str) -> tuple[list[float], Axis]:
    """Where values stand: numbers by what they are, others side by side."""
    numbers = sorted({float(value) for value in values if _is_number(value)})
    if len(numbers) > 2 and all(value is None or _is_number(value) for value in values):
        log = numbers[0] > 0 and numbers[-1] / numbers[0] >= 30
        log = (
            log and statistics.median(numbers) < 0.2 * numbers[-1]
        )  # else it is no matter of ratios
        axis = axis_over(numbers, name, log=log)
        if all(value is None or isinstance(value, int) for value in values):
            whole = tuple(tick for tick in axis.told(4) if float(tick[0]).is_integer())
            axis = dataclasses.replace(axis, ticks=whole) if len(whole) > 1 else axis
        if any(value is None for value in values):  # their own place, left of all
            low = axis.low / (axis.high / axis.low) ** 0.15 if log else (
                axis.low - 0.15 * (axis.high - axis.low)
            )  # fmt: skip
            ticks = (((low * 1.0), "default"), *axis.told(3))
            axis = Axis(label=name, low=low, high=axis.high, log=log, ticks=ticks)
        return [axis.low if value is None else float(value) for value in values], axis
    told = ["default" if value is None else shortened(value_of(value), 11) for value in values]
    kinds = sorted(set(told), key=lambda one: (one == "default", _as_number(one), one))[:9]
    ticks = tuple((float(place), kind) for place, kind in enumerate(kinds))
    at = {kind: float(place) for place, kind in enumerate(kinds)}
    axis = Axis(label=name, low=-0.6, high=len(kinds) - 0.4, ticks=_thin(ticks))
    return [at.get(kind, math.nan) for kind in told], axis


def _thin(ticks: tuple[tuple[float, str], ...]) -> tuple[tuple[float, str], ...]:
    """Labels that have room beside one another."""
    room = 270 / 6.6 / max(1, len(ticks)) - 1
    return tuple((at, shortened(label, max(3, int(room)))) for at, label in ticks)


def _as_number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.inf


def workers(result: SearchResult) -> Figure | None:
    """When workers were held, and when they worked on what."""
    lines = result.bill.workers[:MOST_WORKERS]
    if not lines:
        return None
    end_s = max([result.took_s, *(line.released_s for line in lines)])
    x, by = time_axis(end_s)
    ticks = tuple((-float(place), str(line.worker)) for place, line in enumerate(lines))
    y = Axis(label="worker", low=-len(lines) + 0.4, high=0.6, ticks=ticks)
    plot = Plot("workers over time", x, y, width=1080, height=64 + 20 * len(lines), grid=False)
    pixel = end_s / 900
    for place, line in enumerate(lines):
        held = (line.acquired_s / by, line.released_s / by)
        plot.box(held, (-place - 0.36, -place + 0.36), GREY, opacity=0.25,
                 title=f"worker {line.worker}: held for {seconds(line.paid_s)}, "
                 f"busy for {seconds(line.busy_s)}")  # fmt: skip
        own = [one for one in result.evaluations
               if one.worker == line.worker and one.began_s >= line.acquired_s - 1e-6
               and one.began_s <= line.released_s + 1e-6]  # fmt: skip
        for one in _joined(sorted(own, key=lambda one: one.began_s), pixel):
            title = _told(one[0]) if len(one) == 1 else f"{len(one)} candidates"
            plot.box((one[0].began_s / by, one[-1].ended_s / by), (-place - 0.28, -place + 0.28),
                     _STATUS[one[0].status], opacity=0.85, title=title, least=0.8)  # fmt: skip
    names = {"done": "done", "pruned": "given up", "failed": "failed", "stopped": "stopped"}
    statuses = {one.status for one in result.evaluations if one.worker >= 0}
    entries = [(_STATUS[name], text, "bar") for name, text in names.items() if name in statuses]
    left = len(result.bill.workers) - len(lines)
    return Figure(
        title="Workers",
        svg=plot.svg(),
        caption="A row a worker, from when it was acquired to when it was released; what is "
        "pale was paid for, and no candidate was worked on: starting, waiting, training the "
        f"model.{f' {left} more are in the bill.' if left else ''}",
        entries=(*entries, (GREY, "held", "pale")),
        is_wide=True,
    )


_STATUS = {"done": "#2f83d1", "pruned": "#c08a00", "failed": FAILED, "stopped": "#a35fcb"}


def _joined(own: Sequence[Evaluation], pixel: float) -> list[list[Evaluation]]:
    """Those of a kind that are too short to be seen alone, together."""
    found: list[list[Evaluation]] = []
    for one in own:
        last = found[-1] if found else None
        is_short = one.ended_s - one.began_s < pixel
        if (
            last is not None
            and is_short
            and last[0].status == one.status
            and one.began_s - last[-1].ended_s < pixel
            and (len(last) > 1 or last[0].ended_s - last[0].began_s < pixel)
        ):
            last.append(one)
        else:
            found.append([one])
    return found


def learning(result: SearchResult) -> Figure | None:
    """Score over the share of the first fold's training, where candidates were given up in it."""
    own = [one for one in result.evaluations
           if sum(it.rung.fold == 0 for it in one.rungs) > 1]  # fmt: skip
    if len(own) < 2:
        return None
    own = some(own, 250)
    curves = [
        [(it.rung.share, it.score) for it in one.rungs
         if it.rung.fold == 0 and math.isfinite(it.score)]
        for one in own
    ]  # fmt: skip
    scores = [score for curve in curves for _, score in curve]
    if not scores:
        return None
    x = axis_over([share for curve in curves for share, _ in curve],
                  "share of the training, first fold", log=True)  # fmt: skip
    ticks = sorted({share for curve in curves for share, _ in curve})
    if len(ticks) <= 6:
        told = tuple((share, f"{share:.2g}") for share in ticks)
        x = Axis(label=x.label, low=x.low, high=x.high, log=True, ticks=told)
    plot = Plot("score over the share of training", x,
                score_axis(result, scores, label=label_of(result.metric)))  # fmt: skip
    colours = colours_of(result)
    for one, curve in zip(own, curves, strict=True):
        is_done = one.status == "done"
        colour = colours[one.candidate.technique] if is_done else GREY
        plot.line(curve, colour, width=1.5 if is_done else 0.9)
        plot.dots(curve[-1:], colour, titles=[_told(one)], radius=2.6)
    kinds = [one.candidate.technique for one in own if one.status == "done"]
    return Figure(
        title="Early stopping",
        svg=plot.svg(),
        caption="A line a candidate, over the parts of the first fold's training; grey ones were "
        "given up, or stopped.",
        entries=entries_of(colours, kinds),
    )


def speeds(result: SearchResult) -> Figure | None:
    """Score against the time of predicting a row: what is good and fast."""
    own = [one for one in result.leaderboard if one.predict_row_s > 0 and one.score is not None]
    if len(own) < 3:
        return None
    shown = some(own, 500)
    x = axis_over([1e6 * one.predict_row_s for one in shown], "µs to predict a row", log=True)
    scores = [one.score or 0.0 for one in shown]
    plot = Plot("score against time", x, score_axis(result, scores, label=label_of(result.metric)))
    colours = colours_of(result)
    for one in shown:
        point = (1e6 * one.predict_row_s, one.score or 0.0)
        colour = colours[one.candidate.technique]
        plot.dots([point], colour, titles=[f"{_told(one)}\n{seconds(one.predict_row_s)} a row"],
                  opacity=0.8)  # fmt: skip
        if one.candidate.number == result.best:
            plot.dots([point], INK, shape="ring", radius=7)
    return Figure(
        title="Score and speed",
        svg=plot.svg(),
        caption=f"Of candidates that are done; the best is ringed. Half of them take "
        f"{seconds(statistics.median(one.predict_row_s for one in own))} a row at most "
        f"({number(1 / statistics.median(one.predict_row_s for one in own))} rows a second).",
        entries=entries_of(colours, [one.candidate.technique for one in shown]),
    )
