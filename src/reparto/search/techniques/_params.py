"""Params: what may be set on a technique, by our names, scikit-learn's and Spark MLlib's.

Names are compared without case, hyphens and underscores, so ``maxDepth``, ``max-depth`` and
``max_depth`` are one. Where others call the same thing something else, `Param.also` says so.
A setting that means something on Spark and nothing here is accepted with a note (`Param.unused`)
if leaving it out changes no model, and refused (`NOT_HERE`) if it would.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reparto.errors import UsageError

#: What MLlib's estimators have, and no technique here: why.
NOT_HERE: Mapping[str, str] = {
    **dict.fromkeys(
        ("featuresCol", "labelCol", "predictionCol", "probabilityCol", "rawPredictionCol"),
        "columns are told by the table: --target names the one that is to be foretold",
    ),
    **dict.fromkeys(
        ("weightCol", "offsetCol", "varianceCol", "leafCol", "linkPredictionCol"),
        "there are no such columns here",
    ),
    "validationIndicatorCol": "what training is stopped by is held out by itself",
    **dict.fromkeys(
        (
            "lowerBoundsOnCoefficients",
            "upperBoundsOnCoefficients",
            "lowerBoundsOnIntercepts",
            "upperBoundsOnIntercepts",
        ),
        "scikit-learn's logistic regression has no bounds",
    ),
    **dict.fromkeys(
        ("initialWeights", "initialModel"), "training begins anew for each candidate and fold"
    ),
}


@dataclass(frozen=True)
class Whole:
    """A whole number within these limits."""

    low: int
    high: float = math.inf

    def read(self, value: Any) -> Any:
        """The value as an int; raises ValueError if it is none of these."""
        number = _number(value)
        if number != int(number) or not self.low <= number <= self.high:
            raise ValueError
        return int(number)

    def __str__(self) -> str:
        return f"a whole number {_range(self.low, self.high)}"


@dataclass(frozen=True)
class Number:
    """A number within these limits; ``above`` leaves the lower one out."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False

    def read(self, value: Any) -> Any:
        """The value as a float; raises ValueError if it is none of these."""
        number = _number(value)
        if not self.low <= number <= self.high or (self.above and number == self.low):
            raise ValueError
        return number

    def __str__(self) -> str:
        return f"a number {_range(self.low, self.high, 'above' if self.above else 'from')}"


@dataclass(frozen=True)
class OneOf:
    """One of several words; others have other words for them."""

    words: tuple[str, ...]
    also: tuple[tuple[str, str], ...] = ()

    def read(self, value: Any) -> Any:
        """The word as we write it; raises ValueError if it is none of these."""
        known = {_plain(word): word for word in self.words}
        known.update({_plain(other): word for other, word in self.also})
        if not isinstance(value, str) or _plain(value) not in known:
            raise ValueError
        return known[_plain(value)]

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def read(self, value: Any) -> Any:
        """The value as a bool; raises ValueError if it is none."""
        if isinstance(value, str) and value.strip().lower() in ("true", "false"):
            return value.strip().lower() == "true"
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise ValueError

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True)
class Several:
    """Several values, each of them of a kind."""

    of: Whole | Number
    fewest: int = 0

    def read(self, value: Any) -> Any:
        """The values as a tuple; raises ValueError if one of them cannot be."""
        if not isinstance(value, list | tuple) or len(value) < self.fewest:
            raise ValueError
        return tuple(self.of.read(one) for one in value)

    def __str__(self) -> str:
        least = f"{self.fewest} or more values" if self.fewest else "values"
        return f"a list of {least}, each {self.of}"


@dataclass(frozen=True)
class Any_:
    """Anything, since it changes nothing."""

    def read(self, value: Any) -> Any:
        """The value."""
        return value

    def __str__(self) -> str:
        return "anything"


@dataclass(frozen=True)
class Custom:
    """What a function understands; it raises ValueError for what it does not."""

    understand: Callable[[Any], Any]
    words: str

    def read(self, value: Any) -> Any:
        """What the function makes of it."""
        return self.understand(value)

    def __str__(self) -> str:
        return self.words


Kind = Whole | Number | OneOf | Flag | Several | Any_ | Custom


@dataclass(frozen=True)
class Param:
    """One thing that may be set.

    Attributes:
        name: Ours.
        kind: What it may be.
        default: If it is not set. None may be given where it is None.
        also: Other names for the same: scikit-learn's, LightGBM's, MLlib's where they differ.
        unused: Why it changes nothing here; empty if it does.
    """

    name: str
    kind: Kind
    default: Any = None
    also: tuple[str, ...] = ()
    unused: str = ""


class Params:
    """All that may be set on a technique.

    Args:
        technique: Its kind, for messages.
        params: In the order in which people are told of them.
    """

    def __init__(self, technique: str, params: Iterable[Param]) -> None:
        self.technique = technique
        self._params = {param.name: param for param in params}
        self._names: dict[str, str] = {}
        for param in self._params.values():
            for name in (param.name, *param.also):
                self._names[_plain(name)] = param.name

    def __iter__(self) -> Iterator[Param]:
        return iter(self._params.values())

    def named(self, name: str) -> str:
        """Our name of a setting.

        Raises:
            UsageError: If there is none of that name; tells those that are nearly so.
        """
        found = self._names.get(_plain(name))
        if found is not None:
            return found
        for other, reason in NOT_HERE.items():
            if _plain(other) == _plain(name):
                raise UsageError(
                    f"{self.technique} cannot be given {name}: {reason}", remedy="leave it out"
                )
        own = [param.name for param in self._params.values() if not param.unused]
        close = difflib.get_close_matches(_plain(name), list(self._names), 2, 0.6)
        hints = dict.fromkeys(self._names[one] for one in close)
        hint = f"did you mean {' or '.join(hints)}? " if hints else ""
        raise UsageError(
            f"{self.technique} has no setting {name!r}",
            remedy=f"{hint}it has {', '.join(own) if own else 'none'}",
        )

    def read(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """All settings by our names, those that are not given by their default.

        Raises:
            UsageError: If there is no such setting, it is given twice, or cannot be that.
        """
        found: dict[str, Any] = {}
        given: dict[str, str] = {}
        for name, value in settings.items():
            own = self.named(name)
            if own in given:
                raise UsageError(
                    f"{self.technique} is given {given[own]} and {name}, which are the same",
                    remedy="leave one of them out",
                )
            given[own] = name
            found[own] = self._value(self._params[own], name, value)
        return {
            param.name: found.get(param.name, param.default) for param in self._params.values()
        }

    def notes(self, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """What is said of settings that change nothing."""
        unused = [(name, self._params[self.named(name)].unused) for name in settings]
        return tuple(f"{name} changes nothing here: {why}" for name, why in unused if why)

    def _value(self, param: Param, name: str, value: Any) -> Any:
        if value is None and param.default is None:
            return None
        try:
            return param.kind.read(value)
        except (ValueError, TypeError, OverflowError) as error:
            reason = str(error)
            raise UsageError(
                f"{self.technique}: {name} is {value!r}" + (f": {reason}" if reason else ""),
                remedy=f"it is {param.kind}" + (", or none" if param.default is None else ""),
            ) from error


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum() or letter == "|")


def _number(value: Any) -> float:
    """A number, also one that is written as text, as requests of other systems have it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError
    number = float(value)
    if math.isnan(number):
        raise ValueError
    return number


def _range(low: float, high: float, word: str = "from") -> str:
    parts = [f"{word} {low:g}"] if low > -math.inf else []
    parts += [f"up to {high:g}"] if high < math.inf else []
    return " ".join(parts)
