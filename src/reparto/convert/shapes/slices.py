"""Mini-batches sliced by hand: ``x[i : i + b]`` in a loop over ``range(0, n, b)``."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather._effects import own
from reparto.convert.gather._values import has
from reparto.convert.rewrite import Wrap
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._codes import diagnostic
from reparto.convert.shapes._counting import Counting, counting
from reparto.convert.shapes._names import target_name
from reparto.spec import Finding

ORDER = 22


def find(facts: Facts) -> Decision:
    """Wrap slices of tensors that are batches in ``reparto.shard``.

    Slices of NumPy arrays and lists are left to ``model_calls``: they are no tensors yet.
    """
    decision = Decision()
    done: set[ast.AST] = set()
    for loop in facts.batch_loops():
        count = counting(facts, loop)
        if count is None:
            continue
        for node in own(loop.node.body):
            if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
                continue
            position = _sliced(node.slice, count)
            if position is None or node in done or not _is_hand_made(facts, node):
                continue
            done.add(node)
            dim = position
            if count.over_time:
                dim = 1 if position == 0 else 0
            decision.edits.append(Wrap(node, "shard", dim=dim))
            decision.findings.append(
                Finding(
                    kind="batch",
                    name=target_name(facts, node) or facts.source(node).snippet(node, 40),
                    detail=facts.source(node).snippet(node),
                    place=facts.place(node),
                    rewritten=f"shared out along dimension {dim}",
                )
            )
            if dim and count.over_time:
                why = "the loop walks through time and carries a hidden state"
                decision.diagnostics.append(
                    diagnostic("C102", facts.place(node), dim=dim, why=why)
                )
    facts.share([edit.node for edit in decision.edits if isinstance(edit, Wrap)])
    return decision


def _is_hand_made(facts: Facts, node: ast.Subscript) -> bool:
    parent = facts.parent(node)
    if isinstance(parent, ast.Call) and facts.external_name(parent.func) == "len":
        return False  # a number, the same on every worker
    base = facts.evaluate(node.value)
    return has(base, "tensor") and not has(base, "batch", "array", "items", "tuple")


def _sliced(index: ast.expr, count: Counting) -> int | None:
    """The dimension that is sliced by the counter."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    for position, part in enumerate(parts):
        if isinstance(part, ast.Slice) and part.upper is not None:
            bounds = [bound for bound in (part.lower, part.upper) if bound is not None]
            inner = [node for bound in bounds for node in ast.walk(bound)]
            names = {node.id for node in inner if isinstance(node, ast.Name)}
            scaled = any(isinstance(node, ast.Mult) for node in inner)
            # x[i : i + w] with a counter that moves by one is a window, not a batch.
            derived = names & (count.names - {count.counter})
            if derived or (count.counter in names and (count.strides or scaled)):
                return position
    return None
