"""Reinforcement learning: data comes from an environment, one answer at a time."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._codes import diagnostic

ORDER = 80


def find(facts: Facts) -> Decision:
    """Refuse loops that both step an environment and train."""
    for loop in facts.loops:
        if not {"environment", "backward", "step"} <= loop.effects:
            continue
        call = _step(facts, loop.node)
        place = facts.place(call)
        text = facts.source(call).snippet(call, 40) if isinstance(call, ast.Call) else "step()"
        return Decision(diagnostics=[diagnostic("C202", place, call=text)])
    return Decision()


def _step(facts: Facts, loop: ast.For | ast.While | ast.AsyncFor) -> ast.AST:
    _, functions = facts.effects.reached(loop.body)
    for root in [loop, *(function.node for function in functions)]:
        for node in ast.walk(root):
            if isinstance(node, ast.Call) and "environment" in facts.effects.direct(node):
                return node
    return loop
