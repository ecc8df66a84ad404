"""Decisions on clocks, files and machines: worker 0 decides for all."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather._effects import own
from reparto.convert.gather._values import has
from reparto.convert.rewrite import Wrap
from reparto.convert.shapes._base import Decision
from reparto.spec import Finding

ORDER = 50

_LEAVES = (ast.Break, ast.Continue, ast.Return, ast.Raise)
_MATTERS = {"backward", "step", "model", "save", "load"}


def find(facts: Facts) -> Decision:
    """Wrap conditions that may differ between machines in ``reparto.agree``."""
    decision = Decision()
    for node in facts.scope_of:
        if not isinstance(node, ast.If | ast.While):
            continue
        if not has(facts.evaluate(node.test), "clock"):
            continue
        if not _near_training(facts, node) or not _matters(facts, node):
            continue
        decision.edits.append(Wrap(node.test, "agree"))
        decision.findings.append(
            Finding(
                kind="decision",
                name=facts.source(node).snippet(node.test, 40),
                detail="depends on this machine's clock or files",
                place=facts.place(node.test),
                rewritten="worker 0 decides for all",
            )
        )
    return decision


def _near_training(facts: Facts, node: ast.If | ast.While) -> bool:
    around = set(facts.ancestors(node)) | {node}
    return any(
        (loop.node in around or node in loop.nodes or _function_runs_in(facts, node, loop.node))
        for loop in facts.loops
        if loop.role in ("training", "epochs")
    )


def _function_runs_in(facts: Facts, node: ast.AST, loop: ast.AST) -> bool:
    function = facts.scope_of[node].function()
    body = getattr(loop, "body", [])
    return function in facts.effects.reached(body)[1]


def _matters(facts: Facts, node: ast.If | ast.While) -> bool:
    if isinstance(node, ast.While):
        return True
    parts = [*node.body, *node.orelse]
    if any(isinstance(part, _LEAVES) for part in own(parts)):
        return True
    return bool(_MATTERS & facts.effects.reached(parts)[0])
