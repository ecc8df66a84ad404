"""Loops that train and evaluate are reported; loaders of single samples are warned about."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._codes import diagnostic
from reparto.spec import Finding

ORDER = 60

_DETAIL = {
    "training": "training loop: each pass is a step over one global batch",
    "epochs": "epoch loop: around the training loop",
    "evaluation": "evaluation loop",
}


def find(facts: Facts) -> Decision:
    """Report loops by their role."""
    decision = Decision()
    for loop in facts.loops:
        if loop.role not in _DETAIL:
            continue
        node = loop.node
        head = node.test if isinstance(node, ast.While) else node.iter
        decision.findings.append(
            Finding(
                kind="loop",
                name=loop.source.snippet(head, 50),
                detail=_DETAIL[loop.role],
                place=loop.source.place(node),
            )
        )
        if loop.role == "training":
            for value in facts.evaluate(head):
                if value.kind == "loader" and value.origin and _single(value.origin):
                    decision.diagnostics.append(diagnostic("C401", facts.place(value.origin)))
    return decision


def _single(call: ast.Call) -> bool:
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if None in given or "batch_sampler" in given:
        return False
    size = given.get("batch_size", call.args[1] if len(call.args) > 1 else None)
    return size is None or (isinstance(size, ast.Constant) and size.value == 1)
