"""Reductions over batches: sums, lists of losses, predictions gathered. Reported only.

The runtime reduces values over workers when the script reads them, so none is rewritten.
"""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather._effects import own
from reparto.convert.gather._values import has
from reparto.convert.shapes._base import Decision
from reparto.spec import Finding

ORDER = 62


def find(facts: Facts) -> Decision:
    """Report what training and evaluation loops sum and collect."""
    decision = Decision()
    seen: set[ast.AST] = set()
    for loop in facts.loops:
        if loop.role not in ("training", "evaluation"):
            continue
        bodies = [loop.node.body, *(getattr(f.node, "body", []) for f in loop.functions)]
        for body in bodies:
            for node in own(body if isinstance(body, list) else [body]):
                found = _reduction(facts, node)
                if found is not None and node not in seen:
                    seen.add(node)
                    decision.findings.append(found)
    return decision


def _reduction(facts: Facts, node: ast.AST) -> Finding | None:
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        if has(facts.evaluate(node.value), "parameter") or not _is_measured(facts, node.value):
            return None
        name, detail = ast.unparse(node.target), f"sum of {_text(facts, node.value)}"
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("append", "extend")
        and node.args
        and _is_measured(facts, node.args[0])
    ):
        name = ast.unparse(node.func.value)
        detail = f"collects {_text(facts, node.args[0])}"
    else:
        return None
    return Finding(kind="reduction", name=name, detail=detail, place=facts.place(node))


def _is_measured(facts: Facts, node: ast.expr) -> bool:
    if has(facts.evaluate(node), "batch", "tensor"):
        return True
    return any(
        isinstance(part, ast.Attribute) and part.attr in ("item", "tolist", "cpu", "detach")
        for part in ast.walk(node)
    )


def _text(facts: Facts, node: ast.expr) -> str:
    return facts.source(node).snippet(node, 50)
