"""The verdict in words: what is best, how good, how sure, and what to beware of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from reparto.search._report._proof import Proof
from reparto.search._report._standing import beats, best_of, fold_scores, luck, tied_with
from reparto.search._report._words import (
    counted,
    is_better,
    label_of,
    meaning_of,
    named,
    number,
    plus_minus,
    seconds,
    settings_of,
    size,
)
from reparto.search.metrics import METRICS
from reparto.spec import Evaluation, SearchResult

#: With fewer rows than that, a score is hardly to be trusted.
FEW_ROWS = 200
#: So many rows of the rarest class.
FEW_OF_CLASS = 20
#: A search that takes so many times what it may is late.
LATE = 1.05
#: Choosing the best of so many flatters its score.
MANY = 20


@dataclass(frozen=True)
class Line:
    """A sentence or two.

    Attributes:
        kind: How it is shown.
        text: As it is; not HTML.
    """

    kind: Literal["head", "plain", "warning"]
    text: str


def verdict(result: SearchResult, proof: Proof) -> tuple[Line, ...]:
    """What a reader should know before anything else."""
    best = best_of(result)
    if best is None or best.score is None:
        return (*_nothing(result), Line("plain", _tried(result)))
    if result.facts is None:
        parts = [*_least(result, best)]
    else:
        parts = [*_best(result, best, proof), *_doubts(result, best)]
    lines = [*parts, Line("plain", _tried(result)), *_budget(result)]
    order = {"head": 0, "plain": 1, "warning": 2}
    return tuple(sorted(lines, key=lambda line: order[line.kind]))


def _nothing(result: SearchResult) -> Iterator[Line]:
    yield Line("head", "Nothing was found: no candidate was tested to the end.")
    failed = [one for one in result.evaluations if one.status == "failed"]
    if failed:
        first = f"{named(failed[0])}: {failed[0].failure}"
        count = f"{len(failed)} failed, the first of them" if len(failed) > 1 else "One failed,"
        yield Line("warning", f"{count} {first}")
    if any(one.status == "stopped" for one in result.evaluations):
        yield Line("warning", "Some were stopped by the end of the search: give it more time.")
    if not result.evaluations:
        yield Line("warning", "No candidate was begun: give it more time, or more trials.")


def _best(result: SearchResult, best: Evaluation, proof: Proof) -> Iterator[Line]:
    facts = result.facts
    assert facts is not None and best.score is not None
    over = ""
    if best.spread is not None:
        over = f" (mean ± standard deviation over {len(fold_scores(best))} folds)"
    elif result.num_folds == 1:
        over = " (on a single split)"
    yield Line(
        "head", f"The best is {named(best)}: {label_of(result.metric)} {plus_minus(best)}{over}."
    )
    if best.candidate.settings:
        yield Line("plain", f"Its settings: {settings_of(best.candidate, result)}.")
    if meaning := meaning_of(result.metric, facts):
        yield Line("plain", f"{_capital(label_of(result.metric))}: {meaning}.")
    if told := _in_other_words(best.scores, result.metric):
        yield Line("plain", told)
    yield from _against_constant(result, best)
    yield from _unseen(result, best, proof)
    model = result.model
    if model is not None:
        row = f", {seconds(model.predict_row_s)} a row" if model.predict_row_s else ""
        yield Line("plain", f"The model is trained on all rows: {size(model.size_bytes)}{row}.")
    else:
        yield Line("warning", "There is no model: see the notes below.")


def _in_other_words(scores: Mapping[str, float], metric: str) -> str:
    told = []
    if metric != "accuracy" and math.isfinite(scores.get("accuracy", math.nan)):
        told.append(f"{100 * scores['accuracy']:.4g} % of rows are answered rightly")
    if metric != "r2" and math.isfinite(scores.get("r2", math.nan)) and scores["r2"] > 0:
        told.append(f"{100 * scores['r2']:.3g} % of the target's variance is explained")
    if metric != "mae" and math.isfinite(scores.get("mae", math.nan)):
        told.append(f"on average it is off by {number(scores['mae'])}")
    if metric == "silhouette" and math.isfinite(scores.get("silhouette", math.nan)):
        value = scores["silhouette"]
        words = ("none that counts", "weak, perhaps made up", "reasonable", "strong")
        place = sum(value > edge for edge in (0.25, 0.5, 0.7))
        told.append(f"the structure that was found is {words[place]} (Kaufman and Rousseeuw)")
    text = "; ".join(told)
    return f"{_capital(text)}." if text else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _against_constant(result: SearchResult, best: Evaluation) -> Iterator[Line]:
    baseline = result.baseline
    if baseline is None or best.score is None:
        return
    what = f"the best constant answer, {number(baseline)}"
    told = f"The best constant answer, which looks at no row, scores {number(baseline)}."
    sure = beats(result, best, baseline)
    if sure is False and not is_better(best.score, baseline, result):
        yield Line("warning", f"It did not learn: it is no better than {what}.")
    elif sure is False:
        yield Line(
            "warning",
            f"It may not have learned: it is better than {what}, but by less than luck explains.",
        )
    elif not result.higher_is_better and baseline > 0 and best.score >= 0:
        less = f"{100 * (1 - best.score / baseline):.3g} % less than with {what}"
        yield Line("plain", f"{_capital(label_of(result.metric))} is {less}.")
    else:
        yield Line("plain", told)


def _unseen(result: SearchResult, best: Evaluation, proof: Proof) -> Iterator[Line]:
    model, metric = result.model, label_of(result.metric)
    if model is None or not result.request.test:
        return
    rows = counted(proof.num_test_rows, "row") if proof.num_test_rows else "rows"
    if model.test_score is None:
        yield Line("warning", "The test table says nothing: it has no truth, or was not reached.")
        return
    text = f"On {rows} that nobody had seen: {metric} {number(model.test_score)}"
    off = unlike = None
    if best.score is not None and best.spread is not None and math.isfinite(best.spread):
        worse = best.score - model.test_score
        worse = worse if result.higher_is_better else -worse
        tested = [it.num_rows for it in best.rungs if it.rung.share >= 1.0]
        # The score on that table is a matter of luck too, the less the more rows it has.
        more = sum(tested) / len(tested) / proof.num_test_rows if proof.num_test_rows else 0.0
        most = luck(best.spread, max(2, len(fold_scores(best))), more)
        off, unlike = worse > most, abs(worse) > most
    if off:
        yield Line(
            "warning",
            f"{text}, worse than foretold: the test table is unlike the one that was searched, "
            "or the best was lucky.",
        )
    elif unlike:
        yield Line("plain", f"{text}, better than foretold: its rows are easier, or it was lucky.")
    else:
        yield Line("plain", f"{text}{', as foretold' if off is False else ''}.")


def _doubts(result: SearchResult, best: Evaluation) -> Iterator[Line]:
    facts = result.facts
    assert facts is not None
    if facts.num_rows < FEW_ROWS:
        yield Line(
            "warning", f"Few rows ({facts.num_rows}): another sample may give another best one."
        )
    counts = dict(zip(facts.classes, facts.class_counts, strict=False))
    rarest = min(counts, key=lambda name: counts[name], default=None)
    if rarest is not None and counts[rarest] < FEW_OF_CLASS:
        yield Line(
            "warning",
            f"Few rows of class {rarest} ({counts[rarest]}): what is said of it is mostly luck.",
        )
    yield from _tied(result, best)
    num_done = len(result.leaderboard)
    if best.spread is None and result.num_folds == 1 and facts.domain != "clustering":
        yield Line(
            "warning",
            "There was a single split, so how much of the score is luck is unknown: --folds 5.",
        )
    if num_done >= MANY and result.model is not None and result.model.test_score is None:
        yield Line(
            "warning",
            f"The best of {num_done} was chosen by this very score, which flatters it a little; "
            "rows that nobody has seen (--test) would tell.",
        )
    for note in best.notes:
        yield Line("warning", f"Of the best one: {note}.")


def _tied(result: SearchResult, best: Evaluation) -> Iterator[Line]:
    tied = tied_with(result, best)
    if not tied:
        return
    kinds = list(dict.fromkeys(one.candidate.technique for one in tied))
    shown = ", ".join(kinds[:4]) + (f" and {len(kinds) - 4} more" if len(kinds) > 4 else "")
    what = f"{len(tied)} others" if len(tied) > 1 else f"Candidate {tied[0].candidate.number}"
    text = f"{what} cannot be told apart from it on these folds ({shown})"
    quick = min(
        (one for one in tied if one.predict_row_s > 0), key=lambda one: one.predict_row_s,
        default=None,
    )  # fmt: skip
    if quick is not None and 0 < quick.predict_row_s < best.predict_row_s / 3:
        times = best.predict_row_s / quick.predict_row_s
        text += (
            f"; of them {named(quick)}, {plus_minus(quick)}, answers about {times:.0f} times as "
            "fast"
        )
    yield Line("warning", f"{text}.")


def _least(result: SearchResult, best: Evaluation) -> Iterator[Line]:
    """Of a function or a script."""
    what = "largest" if result.higher_is_better else "smallest"
    where = settings_of(best.candidate) or "its defaults"
    yield Line(
        "head",
        f"The {what} {label_of(result.metric)} is {number(best.score)}, at {where} "
        f"(candidate {best.candidate.number}).",
    )
    least = _known_least(result, best)
    if least is not None and best.score is not None:
        yield Line(
            "plain",
            f"The smallest value that there is: {least:.6g}; this is {best.score - least:.3g} "
            "above it.",
        )
    if result.request.script:
        yield Line(
            "warning",
            "Each candidate ran once: how much of a difference is luck is unknown. Repeat the "
            "best with other seeds before you trust a small one.",
        )


def _known_least(result: SearchResult, best: Evaluation) -> float | None:
    from reparto.search._function_work import FUNCTIONS

    if result.request.domain != "function":
        return None
    function = FUNCTIONS.get(best.candidate.technique)
    return None if function is None else function.least


def _tried(result: SearchResult) -> str:
    counts = Counter[str](
        one.status for one in result.evaluations if one.candidate.origin != "ensemble"
    )
    names = (
        ("done", "tested to the end"),
        ("pruned", "given up early since they lagged behind"),
        ("failed", "failed"),
        ("stopped", "stopped by the end"),
    )
    told = [f"{counts[status]} {name}" for status, name in names if counts[status]]
    whole = counted(sum(counts.values()), "candidate")
    parts = f": {', '.join(told)}" if told else ""
    ended = f" It ended since {_ENDS.get(result.ended, result.ended)}." if result.ended else ""
    return f"{whole} in {seconds(result.took_s)}{parts}.{ended}"


_ENDS = {
    "trials": "as many candidates as were asked for had been tried",
    "time": "its time was up",
    "cost": "it had cost what it may",
    "exhausted": "nothing was left to try",
    "interrupted": "it was interrupted: this is the best so far",
}


def _budget(result: SearchResult) -> Iterator[Line]:
    request, bill = result.request, result.bill
    if request.time_s is not None and result.took_s > LATE * request.time_s:
        late = f"{seconds(request.time_s)} were asked for, and it took {seconds(result.took_s)}."
        yield Line("warning", late)
    if bill.cost:
        asked = f" of {request.cost:g} that it may" if request.cost is not None else ""
        yield Line("plain", f"It cost {bill.cost:.4g}{asked}.")


def direction_of(metric: str, result: SearchResult) -> str:
    """Which way a metric is better, for people."""
    known = METRICS.get(metric)
    higher = result.higher_is_better if known is None else known.higher_is_better
    return "higher is better" if higher else "lower is better"
