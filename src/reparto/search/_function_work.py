"""FunctionWork: candidates are points of a function that is to be made small; there is no data.

branin  ── three equal minima, to see that a search finds one of them
x2 15 ┤ o
│
│                 Branin's test function, 0.397887 at each o
│      o      o
0 └┬──────────────┬
-5      x1     10
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reparto.errors import UsageError
from reparto.search._space import Float, Space
from reparto.search._work import Attempt, Fitted, Reached, Work
from reparto.spec import Candidate, Rung, RungScore, Settings


@dataclass(frozen=True)
class Function:
    """A function that is known by name.

    Attributes:
        kind: Its name.
        space: Its arguments, and where they are sought.
        of: Computes it.
        least: Its smallest value there.
    """

    kind: str
    space: Space
    of: Callable[..., float]
    least: float


def branin(x1: float, x2: float) -> float:
    """Branin's function, with the constants that are usual."""
    b, c, t = 5.1 / (4 * math.pi**2), 5 / math.pi, 1 / (8 * math.pi)
    return (x2 - b * x1**2 + c * x1 - 6) ** 2 + 10 * (1 - t) * math.cos(x1) + 10


FUNCTIONS: Mapping[str, Function] = {
    "branin": Function(
        kind="branin",
        space={"x1": Float(-5.0, 10.0), "x2": Float(0.0, 15.0)},
        of=branin,
        least=0.39788735772973816,
    ),
}


def function_named(name: str) -> Function:
    """The function of a name, however it is spelled: ``Branin``, ``branin-function``.

    Raises:
        UsageError: If there is none.
    """
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    for suffix in ("function", "hoo"):  # Branin and Hoo wrote of it first
        plain = plain.removesuffix(suffix) or plain
    if plain not in FUNCTIONS:
        raise UsageError(
            f"{name} is no function that is known", remedy=f"known: {', '.join(FUNCTIONS)}"
        )
    return FUNCTIONS[plain]


class FunctionWork(Work):
    """Computes functions."""

    def open(self, threads: int) -> None:
        """Nothing has to be made ready."""

    def attempt(self, candidate: Candidate, seed: int) -> Attempt:
        """Begin with a point.

        Raises:
            UsageError: If it is no point of the function.
        """
        function = function_named(candidate.technique)
        return _Point(function, checked(function, candidate.settings))

    def fit(self, candidate: Candidate, seed: int, folder: str) -> Fitted:
        """Refuse: nothing is trained.

        Raises:
            UsageError: Always.
        """
        raise UsageError("a function has no model that could be saved")


class _Point(Attempt):
    def __init__(self, function: Function, arguments: Mapping[str, float]) -> None:
        self._function, self._arguments = function, arguments

    def reach(self, rung: Rung) -> Reached:
        """Compute it; a part of it is not less work."""
        began = time.perf_counter()
        value = self._function.of(**self._arguments)
        took_s = time.perf_counter() - began
        return Reached(RungScore(rung=rung, score=value, scores={"value": value}, fit_s=took_s))


def checked(function: Function, settings: Settings) -> dict[str, float]:
    """The arguments of a function.

    Raises:
        UsageError: If one is missing, unknown or no number.
    """
    names = ", ".join(function.space)
    for name in [*settings, *function.space]:
        if name not in function.space:
            raise UsageError(f"{function.kind} has no argument {name!r}", remedy=f"it has {names}")
        if name not in settings:
            raise UsageError(f"{function.kind}: {name} is missing", remedy=f"it takes {names}")
        if not _is_number(settings[name]):
            raise UsageError(
                f"{function.kind}: {name} is {settings[name]!r}", remedy="give a number"
            )
    return {name: float(value) for name, value in settings.items()}


def _is_number(value: Any) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and math.isfinite(value)
