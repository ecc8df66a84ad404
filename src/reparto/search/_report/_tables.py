"""Tables of the report as rows of text: metrics, columns, classes, workers, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reparto.search._report import _curves
from reparto.search._report._proof import Proof
from reparto.search._report._standing import best_of
from reparto.search._report._verdict import direction_of
from reparto.search._report._words import NONE, label_of, number, seconds, with_spread
from reparto.search.metrics import METRICS
from reparto.spec import Evaluation, SearchResult, TableFacts

Rows = list[tuple[str, ...]]
MOST_COLUMNS = 200
MOST_CLASSES = 200
MOST_FAILURES = 30


def metrics(result: SearchResult) -> tuple[tuple[str, ...], Rows]:
    """All metrics of the best: over the folds, fold by fold in range, on the test table."""
    best = best_of(result)
    tested = {} if result.model is None else result.model.test_scores
    if best is None:
        return (), []
    known = {*best.scores, *tested}
    names = [*(name for name in METRICS if name in known), *sorted(known - METRICS.keys())]
    folds = [one for one in best.rungs if one.rung.share >= 1.0]
    rows = []
    for name in names:
        values = [one.scores[name] for one in folds if name in one.scores]
        finite = [value for value in values if np.isfinite(value)]
        spread = float(np.std(finite, ddof=1)) if len(finite) > 1 else None
        least = f"{number(min(finite))} to {number(max(finite))}" if len(finite) > 1 else NONE
        row = [label_of(name), with_spread(best.scores.get(name), spread), least]
        rows.append((*row, *([number(tested.get(name))] if tested else []),
                     direction_of(name, result)))  # fmt: skip
    last = ("test table",) if tested else ()
    if len(rows) < 2 and result.facts is None:
        return (), []  # the leaderboard says it
    return ("metric", "mean ± deviation", "from fold to fold", *last, ""), rows


def columns(facts: TableFacts) -> Rows:
    """Name, kind, missing, why."""
    rows: Rows = []
    for column in facts.columns[:MOST_COLUMNS]:
        levels = ", ".join(column.levels[:6]) + (", …" if len(column.levels) > 6 else "")
        told = f"{len(column.levels)} level"
        is_told = not column.levels or column.why.startswith(told)
        kind = column.kind if is_told else f"{column.kind}: {told}s ({levels})"
        missing = NONE
        if column.num_missing:
            of = max(facts.num_rows, column.num_missing)  # of the rows that are used
            missing = f"{column.num_missing} ({100 * column.num_missing / of:.2g} %)"
        rows.append((column.name, kind, missing, column.why))
    return rows


def classes(facts: TableFacts, proof: Proof) -> tuple[tuple[str, ...], Rows]:
    """Each class with its rows, and how well it is told apart."""
    if not facts.is_classification or not facts.classes:
        return (), []
    total = sum(facts.class_counts) or 1
    pair = proof.pairs[0] if proof.pairs else None
    found = None if pair is None else _curves.per_class(pair, len(facts.classes))
    rows: Rows = []
    for place, name in enumerate(facts.classes):
        count = facts.class_counts[place] if place < len(facts.class_counts) else 0
        row = [name, str(count), f"{100 * count / total:.3g} %"]
        if found is not None:
            each = (found.precision, found.recall, found.f1)
            row += [number(float(values[place])) for values in each]
        rows.append(tuple(row))
    if len(rows) > MOST_CLASSES:
        rows = rows[:MOST_CLASSES]
    more = ("precision", "recall", "F1") if found is not None else ()
    return ("class", "rows", "share", *more), rows


def mistaken(facts: TableFacts, proof: Proof) -> Rows:
    """Of many classes, those that are taken for another most often."""
    if not facts.is_classification or len(facts.classes) < 4 or not proof.pairs:
        return []
    found = _curves.worst_pairs(proof.pairs[0])
    return [(facts.classes[true], facts.classes[said], str(count)) for true, said, count in found]


def workers(result: SearchResult) -> Rows:
    """What each worker was paid for."""
    bill = result.bill
    price = bill.price_per_hour / 3600.0
    rows = [
        (str(line.worker), line.host or NONE, seconds(line.paid_s), seconds(line.busy_s),
         f"{100 * line.busy_s / line.paid_s:.0f} %" if line.paid_s > 0 else NONE,
         str(line.num_candidates), line.ended, *([f"{line.paid_s * price:.4g}"] if price else []))
        for line in bill.workers
    ]  # fmt: skip
    if len(rows) == 1:
        return rows
    share = f"{100 * bill.busy_s / bill.paid_s:.0f} %" if bill.paid_s > 0 else NONE
    tried = str(sum(line.num_candidates for line in bill.workers))
    whole = ("all", "", seconds(bill.paid_s), seconds(bill.busy_s), share, tried, "")
    return [*rows, (*whole, *([f"{bill.cost:.4g}"] if price else []))]


WORKERS = ("worker", "host", "held", "busy", "share", "candidates", "ended")


def failures(result: SearchResult) -> list[list[Evaluation]]:
    """Candidates that failed, those that failed alike together, most of them first."""
    alike: dict[tuple[str, str], list[Evaluation]] = {}
    for one in result.evaluations:
        if one.status == "failed":
            alike.setdefault((one.candidate.technique, one.failure), []).append(one)
    return sorted(alike.values(), key=lambda group: -len(group))


def flat(value: Any, name: str = "") -> Rows:
    """Names and values, those within others too."""
    if isinstance(value, Mapping) and value:
        return [
            pair
            for key, inner in value.items()
            for pair in flat(inner, f"{name} › {key}" if name else str(key))
        ]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [(name, ", ".join(map(str, value)) or NONE)]
    return [(name, str(value))]
