"""Float, Int, Choice and Space: what a setting may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Float:
    """A number from ``low`` to ``high``; with ``log``, orders of magnitude are alike."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class Int:
    """A whole number from ``low`` to ``high``, both included."""

    low: int
    high: int
    log: bool = False


@dataclass(frozen=True)
class Choice:
    """One of several values: text, numbers, booleans, None, or tuples of numbers (``layers``)."""

    values: tuple[Any, ...]


Dimension = Float | Int | Choice
#: By the setting's name.
Space = Mapping[str, Dimension]
