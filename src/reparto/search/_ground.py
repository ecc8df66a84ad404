"""Ground: what of a technique is searched here, once the request has had its say."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reparto.errors import UsageError
from reparto.search._space import Choice, Dimension, Float, Int, Space
from reparto.spec import Settings

#: A grid over a range has so many values of it.
GRID_VALUES = 3


@dataclass(frozen=True)
class Ground:
    """A technique's settings that are searched.

    Attributes:
        kind: The technique's name.
        space: What may be chosen.
        portfolio: Settings to try first, the best first.
        asked: Names of the settings whose values the request gives.
        resource: What a part of its training is: ``iterations``, ``rows``, ``steps``.
    """

    kind: str
    space: Space
    portfolio: tuple[Settings, ...] = ()
    asked: frozenset[str] = frozenset()
    resource: str = "rows"

    def narrowed(self, asked: Mapping[str, Any], *, only: bool = False) -> Ground:
        """The same with values that the request gives; what contradicts them is not tried.

        Args:
            asked: Values by setting.
            only: Whether other settings keep their defaults.

        Raises:
            UsageError: If what it gives is no space.
        """
        own = {
            name: _like(self.space.get(name), dimension_of(f"{self.kind}.{name}", it))
            for name, it in asked.items()
        }
        if only:
            return Ground(self.kind, own, (), frozenset(own), self.resource)
        space = {**self.space, **own}
        kept = tuple(
            one
            for one in self.portfolio
            if all(name in one and holds(own[name], one[name]) for name in own)
        )
        return Ground(self.kind, space, kept, frozenset(own), self.resource)

    def axes(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Of a grid: the values of each setting that the request gives, or of all of them."""
        names = [name for name in self.space if name in self.asked] or list(self.space)
        return [(name, grid_values(self.space[name])) for name in names]


def _like(own: Dimension | None, given: Dimension) -> Dimension:
    """From 0 to 1 is not only 0 and 1 where the technique takes any number."""
    if isinstance(own, Float) and isinstance(given, Int):
        return Float(float(given.low), float(given.high), given.log)
    return given


def dimension_of(where: str, given: Any) -> Dimension:
    """What a request says of a setting: a list of values, ``{low, high, log}``, or one value.

    Raises:
        UsageError: If it cannot be understood.
    """
    if isinstance(given, Float | Int | Choice):
        return given
    if isinstance(given, Mapping):
        return _range_of(where, dict(given))
    values = given if isinstance(given, list | tuple) else [given]
    if not values:
        raise UsageError(f"{where} has no values", remedy="name at least one")
    return Choice(tuple(tuple(one) if isinstance(one, list) else one for one in values))


def _range_of(where: str, given: dict[str, Any]) -> Dimension:
    if set(given) == {"values"}:
        return dimension_of(where, given["values"])
    unknown = set(given) - {"low", "high", "log"}
    if unknown or not {"low", "high"} <= set(given):
        raise UsageError(
            f"{where} is {given}: that is no range",
            remedy="a list of values, or a range such as {low = 1e-4, high = 1, log = true}",
        )
    low, high, log = given["low"], given["high"], bool(given.get("log", False))
    numbers = all(isinstance(one, int | float) and math.isfinite(one) for one in (low, high))
    if not numbers or low > high or (log and low <= 0):
        raise UsageError(
            f"{where} is from {low} to {high}: that is no range",
            remedy="low is not above high, and with log it is above zero",
        )
    if low == high:
        return Choice((low,))
    if all(isinstance(one, int) and not isinstance(one, bool) for one in (low, high)):
        return Int(low, high, log)
    return Float(float(low), float(high), log)


def holds(dimension: Dimension, value: Any) -> bool:
    """Whether the value is one of these."""
    if isinstance(dimension, Choice):
        return value in dimension.values
    return isinstance(value, int | float) and dimension.low <= value <= dimension.high


def grid_values(dimension: Dimension) -> tuple[Any, ...]:
    """All values of a choice, some of a range."""
    if isinstance(dimension, Choice):
        return dimension.values
    places = [index / (GRID_VALUES - 1) for index in range(GRID_VALUES)]
    return tuple(dict.fromkeys(at(dimension, place) for place in places))


def at(dimension: Dimension, place: float) -> Any:
    """The value at a place from 0 to 1."""
    place = min(1.0, max(0.0, place))
    if isinstance(dimension, Choice):
        return dimension.values[min(len(dimension.values) - 1, int(place * len(dimension.values)))]
    low, high = float(dimension.low), float(dimension.high)
    if dimension.log:
        value = math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
    else:
        value = low + place * (high - low)
    value = min(high, max(low, value))
    return round(value) if isinstance(dimension, Int) else value


def place_of(dimension: Dimension, value: Any) -> float:
    """Where a value is, from 0 to 1; the inverse of `at`."""
    if isinstance(dimension, Choice):
        return (dimension.values.index(value) + 0.5) / len(dimension.values)
    low, high, number = float(dimension.low), float(dimension.high), float(value)
    if high == low:
        return 0.5
    if dimension.log:
        low, high, number = math.log(low), math.log(high), math.log(number)
    return (number - low) / (high - low)


def key_of(kind: str, settings: Settings) -> tuple[Any, ...]:
    """What makes a candidate the same as another one."""
    return (kind, *sorted((name, repr(value)) for name, value in settings.items()))


def count_of(axes: Iterable[tuple[str, tuple[Any, ...]]]) -> int:
    """Points of a grid."""
    return math.prod(len(values) for _, values in axes)
