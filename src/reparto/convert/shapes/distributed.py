"""Scripts that share themselves out already are left as they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal, cast

from reparto.convert.gather import Facts
from reparto.convert.gather import _library as library
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._codes import diagnostic

ORDER = 0

_OURS = {"reparto.init", "reparto.prepare", "reparto.shard"}


def find(facts: Facts) -> Decision:
    """Leave the script unchanged if it distributes itself, and say how to launch it."""
    named = list(_names(facts))
    for node, name in named:
        if name in _OURS:
            return _unchanged(facts, node, "C303", "reparto", "it already uses reparto")
    for node, name in named:
        if library.starts(name, library.PROCESSES) and _trains(facts, node):
            reason = f"it starts its own workers with {name}"
            return _unchanged(facts, node, "C302", "plain", reason, what=name)
    for node, name in named:
        for prefix, launch, what in library.DISTRIBUTED:
            if library.starts(name, (prefix,)):
                how = cast(Literal["torchrun", "plain"], launch)
                reason = f"it distributes itself with {what}"
                return _unchanged(facts, node, "C301", how, reason, what=what)
    return Decision()


def _names(facts: Facts) -> Iterator[tuple[ast.Call | ast.ClassDef, str]]:
    for call in facts.calls:
        for value in facts.evaluate(call.func):
            if value.kind == "external":
                yield call, value.name
    for node in facts.scopes:
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                if name := facts.external_name(base):
                    yield node, name


def _trains(facts: Facts, node: ast.Call | ast.ClassDef) -> bool:
    if isinstance(node, ast.Call):
        return "backward" in facts.effects.reached([node])[0]
    methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    return any("backward" in facts.effects.reached(method.body)[0] for method in methods)


def _unchanged(
    facts: Facts,
    node: ast.AST,
    code: str,
    launch: Literal["reparto", "torchrun", "plain"],
    reason: str,
    **fields: object,
) -> Decision:
    found = diagnostic(code, facts.place(node), **fields)
    return Decision(diagnostics=[found], launch=launch, reason=reason)
