"""Loops that count through the data in batches: ``for i in range(0, n, b)`` and its kin."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from reparto.convert.gather import Facts
from reparto.convert.gather._loops import Loop
from reparto.convert.shapes._batch_dimension import carries_state


@dataclass(frozen=True)
class Counting:
    """A loop with a counter.

    Attributes:
        counter: The counter.
        names: The counter, and what is computed from it in the loop's body.
        strides: Whether the counter itself moves by whole batches (a ``range`` with a step).
        over_time: Whether a hidden state is carried from pass to pass: the counter walks
            through time, and the batch is the other dimension.
    """

    counter: str
    names: frozenset[str]
    strides: bool
    over_time: bool


def counting(facts: Facts, loop: Loop) -> Counting | None:
    """What a loop counts with; None if it does not count."""
    node = loop.node
    if isinstance(node, ast.While):
        return _while(facts, loop)
    counter, ranged = _counter(facts, node.target, node.iter)
    if counter is None or ranged is None:
        return None
    step = ranged.args[2] if len(ranged.args) == 3 else None
    strides = step is not None and getattr(step, "value", 0) != 1
    names = _derived(node.body, {counter})
    return Counting(counter, frozenset(names), strides, carries_state(facts, loop))


def _while(facts: Facts, loop: Loop) -> Counting | None:
    # while start < n: … x[start : start + b] …; start += b
    assert isinstance(loop.node, ast.While)
    tested = _names(loop.node.test)
    for node in loop.node.body:
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.op, ast.Add)
            and isinstance(node.target, ast.Name)
            and node.target.id in tested
            and getattr(node.value, "value", 0) != 1
        ):
            names = _derived(loop.node.body, {node.target.id})
            return Counting(node.target.id, frozenset(names), True, carries_state(facts, loop))
    return None


def _counter(
    facts: Facts, target: ast.expr, iterable: ast.expr
) -> tuple[str | None, ast.Call | None]:
    if not isinstance(iterable, ast.Call):
        return None, None
    name = facts.external_name(iterable.func)
    last = name.rsplit(".", 1)[-1]
    if last in ("range", "trange") and isinstance(target, ast.Name):
        return target.id, iterable
    if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        return _counter(facts, target.elts[1], iterable.args[0])
    if last == "tqdm" and iterable.args:
        return _counter(facts, target, iterable.args[0])
    return None, None


def _derived(body: list[ast.stmt], names: set[str]) -> set[str]:
    # start = i * b; end = min(start + b, n)
    for statement in body:
        if not isinstance(statement, ast.Assign) or _subscripts(statement.value):
            continue
        if names & _names(statement.value):
            names = names.union(*map(_names, statement.targets))
    return names


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _subscripts(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Subscript | ast.Attribute) for part in ast.walk(node))
