"""What a report shows of its rows: who did it (ways), in which groups, and marked how.

way     a device and how it was used: one line, one colour in every figure
group   models that are shown together: the perceptrons of one depth, then the others
mark    the gravest flag of a row: its shape in every figure, its sign in every table
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reparto._pages import COLOURS
from reparto.spec import Flag, Measurement

NONE = "–"
SUSPECT = "#d1495b"  # red, on white and on black

#: Flags, the gravest first: how a figure draws it, its sign in a table, and what it means.
FLAGS: dict[Flag, tuple[str, str, str]] = {
    "failed": (
        "x", "✕",
        "There is no time: the row says why. In a figure it lies at the foot of its panel.",
    ),
    "not-like-for-like": (
        "s", "□",
        "It did other work than the rows beside it: another model, other data, another batch or "
        "another number of steps. Its time says nothing about theirs.",
    ),
    "did-not-learn": (
        "^", "△",
        "The loss that it reached is no better than that of the best constant answer. What was "
        "timed is a network that trains nothing.",
    ),
    "throttled": (
        "D", "◇",
        "The device was slower than it can be: hot, short of power, or shared with others.",
    ),
    "noisy": (
        "o", "○",
        "Its times are spread widely; the bar is the 95 % interval of the median. A difference "
        "smaller than the bar means nothing.",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Way:
    """A device and how it was used."""

    device: str
    threads: int
    form: str
    dtype: str
    strategy: str
    num_workers: int


@dataclass(frozen=True)
class Group:
    """Models that are shown together, from the smallest to the largest."""

    name: str
    title: str
    models: tuple[str, ...]


def way_of(row: Measurement) -> Way:
    """How a row was made."""
    return Way(row.device, row.threads, row.form, row.dtype, row.strategy, row.num_workers)


def ways_of(rows: Iterable[Measurement]) -> tuple[Way, ...]:
    """All ways, in the order in which they come."""
    return tuple(dict.fromkeys(map(way_of, rows)))


def labels_of(ways: Sequence[Way]) -> dict[Way, str]:
    """Names of the ways, as short as tells them apart."""
    forms, dtypes = len({way.form for way in ways}) > 1, len({way.dtype for way in ways}) > 1
    shared = any((way.strategy, way.num_workers) != ("single", 1) for way in ways)
    labels = {}
    for way in ways:
        threads = {other.threads for other in ways if other.device == way.device}
        parts = (
            way.device,
            f"{way.threads} thread{'s' if way.threads != 1 else ''}" if len(threads) > 1 else "",
            way.form if forms else "",
            way.dtype if dtypes else "",
            f"{way.strategy} × {way.num_workers}" if shared else "",
        )
        labels[way] = " · ".join(part for part in parts if part)
    return labels


def look_of(index: int) -> tuple[str, str]:
    """Colour and line of the way at this place; lines change where colours are used up."""
    colours = COLOURS[1:]  # the first is for what others are held against
    turn, place = divmod(index, len(colours))
    return colours[place], ("-", "--", "-.", ":")[turn % 4]


def mark_of(row: Measurement) -> Flag | None:
    """The gravest flag of a row."""
    return next((flag for flag in FLAGS if flag in row.flags), None)


def is_sound(row: Measurement) -> bool:
    """Whether its time may be held against others': noise is allowed, other work is not."""
    return row.step_s is not None and mark_of(row) in (None, "noisy")


def groups_of(rows: Iterable[Measurement]) -> tuple[Group, ...]:
    """Perceptrons by depth, then each other suite."""
    found: dict[tuple[bool, int, str], dict[str, int]] = {}
    for row in rows:
        depth = len(row.hidden)
        key = (depth == 0, depth, "" if depth else row.work.suite)
        models = found.setdefault(key, {})
        models[row.work.model] = max(row.work.num_parameters, models.get(row.work.model, 0))
    return tuple(_group(*key[1:], models) for key, models in sorted(found.items()))


def _group(depth: int, suite: str, models: dict[str, int]) -> Group:
    ordered = tuple(sorted(models, key=lambda model: models[model]))
    if not depth:
        return Group(suite, suite.upper() if suite == "cnn" else suite, ordered)
    return Group(f"depth-{depth}", f"{depth} hidden layer{'s' if depth > 1 else ''}", ordered)


def some_of(numbers: Iterable[int], most: int) -> tuple[int, ...]:
    """The smallest, the largest, and some between.

    Example:
        >>> some_of([2, 8, 32, 128, 512], 3)
        (2, 32, 512)
    """
    ordered = sorted(set(numbers))
    if len(ordered) <= most:
        return tuple(ordered)
    places = [round(i * (len(ordered) - 1) / max(most - 1, 1)) for i in range(most)]
    return tuple(ordered[place] for place in dict.fromkeys(places))
