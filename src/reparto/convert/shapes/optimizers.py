"""Optimizers are prepared where they get their name."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.rewrite import Wrap
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._constructions import to_prepare
from reparto.convert.shapes._names import target_name
from reparto.spec import Finding

ORDER = 12


def find(facts: Facts) -> Decision:
    """Wrap each optimizer in ``reparto.prepare``; unknown ones are known by their use."""
    decision = Decision()
    used = _stepped(facts)
    done: set[ast.expr] = set()
    for call in facts.calls:
        made = [
            value
            for value in facts.evaluate(call)
            if value.origin is call
            and (value.kind == "optimizer" or (value.kind == "opaque" and call in used))
        ]
        if not made:
            continue
        for node in to_prepare(facts, call):
            owner = facts.scope_of[node].owner()
            if node in done or (owner and facts.evaluator.classes.kind(owner) == "optimizer"):
                continue
            done.add(node)
            decision.edits.append(Wrap(node, "prepare"))
            decision.findings.append(
                Finding(
                    kind="optimizer",
                    name=target_name(facts, node) or made[0].name.rsplit(".", 1)[-1],
                    detail=facts.source(call).snippet(call),
                    place=facts.place(node),
                    rewritten="prepared: steps with the gradient of the global batch",
                )
            )
    return decision


def _stepped(facts: Facts) -> set[ast.AST]:
    uses: dict[str, set[ast.AST]] = {"step": set(), "zero_grad": set()}
    for call in facts.calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in uses:
            values = facts.evaluate(call.func.value)
            uses[call.func.attr] |= {value.origin for value in values if value.origin}
    return uses["step"] & uses["zero_grad"]
