"""Abstract values: what an expression may be, as far as sharing out is concerned."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from reparto.convert.gather._scopes import Scope

Kind = Literal[
    "external",  # something of a library, by dotted name: a module, class or function
    "module",  # a module of the user's
    "class",  # a class of the user's
    "function",  # a function of the user's
    "instance",  # an object of a user's class
    "opaque",  # what a library's function returned
    "model",
    "optimizer",
    "scheduler",
    "loader",
    "environment",  # a simulator that answers one action at a time
    "tuple",
    "items",  # a list, dict, set or iterator of values
    "batch",  # data that is shared out: it comes from a loader, or was sharded
    "tensor",  # data that every worker has in full
    "parameter",  # a tensor that is trained
    "array",  # NumPy, pandas, lists of numbers: not a tensor (yet)
    "size",  # a number of samples
    "number",
    "clock",  # differs from machine to machine
]


@dataclass(frozen=True)
class Value:
    """One thing that an expression may be.

    Attributes:
        kind: See ``Kind``.
        name: Dotted name of the class, function or factory.
        scope: The user's class, function or module.
        origin: The call that constructed it.
        parts: Values of each element of a tuple; of all elements together for items.
    """

    kind: Kind
    name: str = ""
    scope: Scope | None = None
    origin: ast.Call | None = None
    parts: tuple[frozenset[Value], ...] = ()


Values: TypeAlias = frozenset[Value]

NOTHING: Values = frozenset()
BATCH: Values = frozenset({Value("batch")})
TENSOR: Values = frozenset({Value("tensor")})
PARAMETER: Values = frozenset({Value("parameter")})
ARRAY: Values = frozenset({Value("array")})
SIZE: Values = frozenset({Value("size")})
NUMBER: Values = frozenset({Value("number")})
CLOCK: Values = frozenset({Value("clock")})


def has(values: Values, *kinds: Kind) -> bool:
    """Whether one of the values is of one of the kinds, also inside of tuples and items."""
    return any(
        value.kind in kinds or any(has(part, *kinds) for part in value.parts) for value in values
    )


def only(values: Values, *kinds: Kind) -> bool:
    """Whether something is known and all of it is of these kinds."""
    return bool(values) and all(value.kind in kinds for value in values)


def items(values: Iterable[Value]) -> Values:
    """An iterable of the given values."""
    return frozenset({Value("items", parts=(frozenset(values),))})


def union(parts: Iterable[Values]) -> Values:
    """All values of several sets."""
    return frozenset().union(*parts)


def elements(values: Values) -> Values:
    """What iterating over the values yields."""
    out: set[Value] = set()
    for value in values:
        if value.kind == "loader":
            out |= BATCH
        elif value.kind in ("tuple", "items"):
            out |= union(value.parts)
        elif value.kind in ("batch", "tensor", "array", "clock", "opaque", "environment"):
            out.add(Value(value.kind))
    return frozenset(out)


def unpack(values: Values, path: tuple[int, ...]) -> Values:
    """What is bound by unpacking the values at a path."""
    for index in path:
        out: set[Value] = set()
        for value in values:
            if value.kind == "tuple" and index < len(value.parts):
                out |= value.parts[index]
            else:
                out |= elements(frozenset({value}))
        values = frozenset(out)
    return values


def combine(parts: Iterable[Values]) -> Values:
    """What an operation on the values yields: data stays data, clocks stay clocks."""
    operands = union(parts)
    out: set[Value] = set()
    if has(operands, "batch"):
        out |= BATCH
    elif has(operands, "tensor", "parameter"):
        out |= TENSOR
    elif has(operands, "array"):
        out |= ARRAY
    elif has(operands, "size"):
        out |= SIZE
    elif has(operands, "number"):
        out |= NUMBER
    if has(operands, "clock"):
        out |= CLOCK
    return frozenset(out)


def widen(values: Values, depth: int = 4) -> Values:
    """Forget detail that would grow without bound: deep nesting, and very many values."""
    if len(values) > 40:
        return frozenset(value for value in values if not value.parts)
    if not any(value.parts for value in values):
        return values
    if depth == 0:
        return frozenset(value for value in values if not value.parts)
    return frozenset(
        Value(value.kind, value.name, value.scope, value.origin, parts)
        if (parts := tuple(widen(part, depth - 1) for part in value.parts)) != value.parts
        else value
        for value in values
    )
