"""Generators of the user's that yield batches are shared out where a loop walks through them."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather._functions import own_nodes
from reparto.convert.gather._values import elements, has
from reparto.convert.rewrite import Wrap
from reparto.convert.shapes._base import Decision
from reparto.spec import Finding

ORDER = 26


def find(facts: Facts) -> Decision:
    """Wrap calls of batch generators in the head of a loop in ``reparto.shard``.

    A generator of NumPy arrays is left to ``model_calls``: there they are tensors.
    """
    decision = Decision()
    done: set[ast.Call] = set()
    for loop in facts.batch_loops():
        if isinstance(loop.node, ast.While):
            continue
        for call in ast.walk(loop.node.iter):
            if not isinstance(call, ast.Call) or call in done or not _generates(facts, call):
                continue
            yielded = elements(facts.evaluate(call))
            if has(yielded, "batch") or not has(yielded, "tensor"):
                continue
            done.add(call)
            decision.edits.append(Wrap(call, "shard"))
            decision.findings.append(
                Finding(
                    kind="batch",
                    name=facts.source(call).snippet(loop.node.target, 40),
                    detail=facts.source(call).snippet(call),
                    place=facts.place(call),
                    rewritten="each batch that it yields is shared out",
                )
            )
    facts.share([edit.node for edit in decision.edits if isinstance(edit, Wrap)])
    return decision


def _generates(facts: Facts, call: ast.Call) -> bool:
    return any(
        isinstance(node, ast.Yield)
        for function in facts.evaluator.callees(call)
        for node in own_nodes(function.node)
    )
