"""Batches made by ``torch.split``, ``x.split``, ``x.chunk`` and walked through by a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from reparto.convert.gather import Facts
from reparto.convert.gather._values import has
from reparto.convert.rewrite import Wrap
from reparto.convert.shapes._base import Decision
from reparto.spec import Finding

ORDER = 24

_FUNCTIONS = {"torch.split", "torch.chunk", "torch.tensor_split"}
_METHODS = {"split", "chunk", "tensor_split"}


def find(facts: Facts) -> Decision:
    """Wrap splits that a training or evaluation loop walks through in ``reparto.shard``."""
    decision = Decision()
    done: set[ast.Call] = set()
    for loop in facts.batch_loops():
        if isinstance(loop.node, ast.While):
            continue
        for call in _splits(facts, loop.node.iter):
            if call in done or has(facts.evaluate(call), "batch"):
                continue
            done.add(call)
            dim = _dimension(facts, call)
            decision.edits.append(Wrap(call, "shard", dim=dim))
            decision.findings.append(
                Finding(
                    kind="batch",
                    name=facts.source(call).snippet(loop.node.target, 40),
                    detail=facts.source(call).snippet(call),
                    place=facts.place(call),
                    rewritten=f"each part is shared out along dimension {dim}",
                )
            )
    facts.share([edit.node for edit in decision.edits if isinstance(edit, Wrap)])
    return decision


def _splits(facts: Facts, iterable: ast.expr, depth: int = 3) -> Iterator[ast.Call]:
    for node in ast.walk(iterable):
        if isinstance(node, ast.Call) and _is_split(facts, node):
            yield node
        elif isinstance(node, ast.Name) and depth:
            found = facts.scope_of[node].lookup(node.id) if node in facts.scope_of else None
            for binding in found[1] if found else ():
                if binding.kind == "assign" and binding.value is not None:
                    yield from _splits(facts, binding.value, depth - 1)


def _is_split(facts: Facts, call: ast.Call) -> bool:
    if facts.external_name(call.func) in _FUNCTIONS:
        return True
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _METHODS
        and has(facts.evaluate(function.value), "tensor")
    )


def _dimension(facts: Facts, call: ast.Call) -> int:
    position = 2 if facts.external_name(call.func) in _FUNCTIONS else 1
    given = [keyword.value for keyword in call.keywords if keyword.arg == "dim"]
    given += call.args[position : position + 1]
    value = getattr(given[0], "value", 0) if given else 0
    return value if isinstance(value, int) else 0
