"""Numbers and settings as people read them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reparto.search.metrics import METRICS
from reparto.spec import Candidate, Evaluation, SearchResult, TableFacts

#: What is told where nothing is known.
NONE = "–"
ENSEMBLE = "ensemble"


def number(value: float | None) -> str:
    """A score.

    Example:
        >>> number(0.97321), number(1234.56), number(54.318), number(0.0000123), number(None)
        ('0.9732', '1 235', '54.32', '1.23e-05', '–')
    """
    if value is None or not math.isfinite(value):
        return NONE
    size = abs(value)
    if size >= 1e7 or 0 < size < 1e-3:
        return f"{value:.3g}"
    if size >= 1000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.{_decimals(value)}f}"


def _decimals(value: float) -> int:
    size = abs(value)
    return 4 if size < 10 else 2 if size < 100 else 1


def plus_minus(one: Evaluation) -> str:
    """A score, and by how much it differs from fold to fold."""
    return with_spread(one.score, one.spread)


def with_spread(value: float | None, spread: float | None) -> str:
    """A number, and how far others are from it; both with as many digits after the point.

    Example:
        >>> with_spread(0.9706, 0.00213), with_spread(53.87, 6.2), with_spread(0.5, None)
        ('0.9706 ± 0.0021', '53.87 ± 6.20', '0.5000')
    """
    told = number(value)
    if spread is None or value is None or not math.isfinite(spread):
        return told
    if 1e-3 <= abs(value) < 1000 and spread < 1000:
        return f"{told} ± {spread:.{_decimals(value)}f}"
    return f"{told} ± {number(spread)}"


def seconds(value: float) -> str:
    """How long something took.

    Example:
        >>> seconds(3.2e-6), seconds(0.0421), seconds(7.25), seconds(250), seconds(7322)
        ('3.2 µs', '42 ms', '7.2 s', '4 min 10 s', '2 h 02 min')
    """
    if not math.isfinite(value):
        return "no limit"
    for scale, unit in ((1e6, "µs"), (1e3, "ms")):
        if 0 < value * scale < 999.5:
            return f"{value * scale:.2g} {unit}" if value * scale < 99.5 else (
                f"{value * scale:.0f} {unit}"
            )  # fmt: skip
    if value < 99.95:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(num_bytes: float) -> str:
    """How much memory or disk.

    Example:
        >>> size(0), size(812), size(20_480), size(5_500_000)
        ('–', '812 B', '20 KiB', '5.2 MiB')
    """
    if num_bytes <= 0:
        return NONE
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if num_bytes >= scale:
            value = num_bytes / scale
            return f"{value:.1f} {unit}" if value < 10 else f"{value:.0f} {unit}"
    return f"{num_bytes:.0f} B"


def counted(count: int, what: str) -> str:
    """So many of something.

    Example:
        >>> counted(1, "row"), counted(20_000, "row")
        ('1 row', '20 000 rows')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}".replace(",", " ")


_SHORT = {"auroc": "AUROC", "aupr": "AUPR", "matthews": "Matthews", "kappa": "kappa"}


def short_of(metric: str) -> str:
    """What a metric is called above a column."""
    return _SHORT.get(metric) or label_of(metric)


def label_of(metric: str) -> str:
    """What a metric is called."""
    return METRICS[metric].label if metric in METRICS else metric


#: What a metric says, for people who do not work with it every day.
_MEANINGS = {
    "accuracy": "the share of rows that are answered rightly",
    "balanced-accuracy": "of each class the share of rows that are found, the mean of these",
    "precision": "of the rows that are taken for {of}, the share that are",
    "recall": "of the rows of {of}, the share that are found",
    "specificity": "of the rows that are not of {of}, the share that are not taken for it",
    "f1": "for {of}, 1 where all its rows are found and no others taken for it, 0 where none is",
    "matthews": "1 is without a mistake, 0 is no better than guessing",
    "kappa": "1 is without a mistake, 0 is no better than guessing",
    "auroc": "how often a row of {of} is thought likelier to be so than another; 0.5 by chance",
    "aupr": "1 where the likeliest rows of {of} are all so; by chance, its share of the rows",
    "log-loss": "0 is right and sure of it; to be sure and wrong counts most",
    "rmse": "how far answers are off, in the unit of what is foretold; large errors count more",
    "mae": "how far answers are off on average, in the unit of what is foretold",
    "r2": "1 is without an error, 0 is no better than to answer the mean always",
    "silhouette": "1 where groups lie far apart, 0 where they overlap",
}


def meaning_of(metric: str, facts: TableFacts) -> str:
    """What a metric says, in words; nothing if it is not one of ours."""
    text = _MEANINGS.get(metric, "")
    if "{of}" not in text:
        return text
    if facts.domain == "binary" and len(facts.classes) == 2:
        return text.format(of=f"“{facts.classes[1]}”")
    return f"{text.format(of='a class')}; the mean over the classes"


def is_better(one: float, other: float, result: SearchResult) -> bool:
    """Whether a score is better than another one, by the metric of the search."""
    return one > other if result.higher_is_better else one < other


def settings_of(candidate: Candidate, result: SearchResult | None = None) -> str:
    """Settings in a line; of an ensemble, its members and how much each counts."""
    if candidate.technique == ENSEMBLE and "members" in candidate.settings:
        known = {} if result is None else techniques_of(result)
        told = [
            f"{float(weight):.2f} × #{number_} {known.get(int(number_), '')}".rstrip()
            for number_, weight in candidate.settings["members"]
        ]
        return " + ".join(told)
    return ", ".join(f"{name}={value_of(value)}" for name, value in candidate.settings.items())


def techniques_of(result: SearchResult) -> Mapping[int, str]:
    """The technique of each candidate, by its number."""
    return {one.candidate.number: one.candidate.technique for one in result.evaluations}


def named(one: Evaluation) -> str:
    """A candidate, as sentences speak of it."""
    if one.candidate.technique == ENSEMBLE:
        return f"an ensemble of {counted(len(one.candidate.settings.get('members', ())), 'model')}"
    return f"{one.candidate.technique} (candidate {one.candidate.number})"


def value_of(value: Any) -> str:
    """What a setting is."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_of, value))}]"
    return str(value)
