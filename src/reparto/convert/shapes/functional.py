"""Models without a module: ``x @ w + b`` with raw parameters; the data itself is shared out."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather._effects import own
from reparto.convert.gather._loops import Loop
from reparto.convert.gather._values import has, only
from reparto.convert.rewrite import Edit, Share, Wrap
from reparto.convert.shapes._base import Decision
from reparto.spec import Finding

ORDER = 42


def find(facts: Facts) -> Decision:
    """Shard the data of training loops that no other shape has shared out."""
    decision = Decision()
    for loop in facts.training:
        if "model" in loop.effects or any(
            isinstance(node, ast.Name | ast.Call) and has(facts.evaluate(node), "batch")
            for node in loop.nodes
            if node in facts.scope_of
        ):
            continue
        edit = _assigned_inside(facts, loop) or _before(facts, loop)
        for part in edit:
            decision.edits.append(part)
            node = part.before if isinstance(part, Share) else part.node
            names = part.names if isinstance(part, Share) else (facts.source(node).snippet(node),)
            decision.findings.append(
                Finding(
                    kind="batch",
                    name=", ".join(names),
                    detail="data of a model that is written out by hand",
                    place=facts.place(node),
                    rewritten="shared out along dimension 0",
                )
            )
    facts.share([edit.node for edit in decision.edits if isinstance(edit, Wrap)])
    return decision


def _assigned_inside(facts: Facts, loop: Loop) -> list[Edit]:
    """``x, y = get_batch(…)`` and ``x = X[idx]`` at the top of the body."""
    edits: list[Edit] = []
    for statement in loop.node.body:
        if not isinstance(statement, ast.Assign):
            continue
        value = statement.value
        if isinstance(value, ast.Call | ast.Subscript) and _is_data(facts, value):
            names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)}
            if isinstance(value, ast.Call) and not list(facts.evaluator.callees(value)):
                continue
            if not names & _bound_in(loop) or isinstance(value, ast.Subscript):
                edits.append(Wrap(value, "shard"))
    return edits


def _before(facts: Facts, loop: Loop) -> list[Edit]:
    """``x`` and ``y`` of full-batch training, made before the loop."""
    inside = _bound_in(loop)
    loads: dict[str, list[ast.Name]] = {}
    for node in own(loop.node.body):
        if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
            continue
        if node.id not in inside and _is_data(facts, node):
            loads.setdefault(node.id, []).append(node)
    if not loads:
        return []
    here = loop.scope.function()
    local = [name for name in loads if name in here.bindings and name not in here.outer]
    edits: list[Edit] = []
    if local:
        order = sorted(local, key=lambda name: (loads[name][0].lineno, loads[name][0].col_offset))
        edits.append(Share(loop.node, tuple(order)))
    for name, nodes in loads.items():
        if name not in local:
            edits += [Wrap(node, "shard") for node in nodes]
    return edits


def _is_data(facts: Facts, node: ast.expr) -> bool:
    values = facts.evaluate(node)
    if only(values, "tuple"):
        return all(only(part, "tensor") for value in values for part in value.parts)
    return only(values, "tensor") and not any(value.name == "grad" for value in values)


def _bound_in(loop: Loop) -> set[str]:
    return {
        node.id
        for node in ast.walk(loop.node)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
