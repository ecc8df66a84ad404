"""Data that no loader made is shared out where the model is called with it."""

from __future__ import annotations

import ast
import re

from reparto.convert.gather import Facts
from reparto.convert.gather import _library as library
from reparto.convert.gather._values import has, only
from reparto.convert.rewrite import Wrap
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._batch_dimension import batch_dimension, carried_names
from reparto.spec import Finding

ORDER = 40

# What goes into a model beside its data and has no batch: graphs, states.
_SHARED_BY_ALL = re.compile(r"adj|edge|graph|lapl|hidden|state", re.IGNORECASE)


def find(facts: Facts) -> Decision:
    """Wrap the data arguments of model calls in training steps in ``reparto.shard``."""
    decision = Decision()
    for call in facts.calls:
        if not _is_model_call(facts, call) or not facts.trains(call):
            continue
        if facts.inside_module_class(call) or facts.without_gradient(call):
            continue
        arguments = _data_arguments(facts, call)
        if not arguments or any(has(facts.evaluate(part), "batch") for part in arguments):
            continue
        dim, _ = batch_dimension(facts, call)
        for part in arguments:
            decision.edits.append(Wrap(part, "shard", dim=dim))
            decision.findings.append(
                Finding(
                    kind="batch",
                    name=facts.source(part).snippet(part, 40),
                    detail=f"goes into {facts.source(call).snippet(call.func, 40)}(…)",
                    place=facts.place(part),
                    rewritten=f"shared out along dimension {dim} where the model is called",
                )
            )
    facts.share([edit.node for edit in decision.edits if isinstance(edit, Wrap)])
    return decision


def _is_model_call(facts: Facts, call: ast.Call) -> bool:
    for value in facts.evaluate(call.func):
        if value.kind == "model" and not library.is_loss(value.name):
            return True
    function = call.func
    if isinstance(function, ast.Attribute):
        base = facts.evaluate(function.value)
        if any(value.kind == "model" and value.scope for value in base):
            data = [facts.evaluate(part) for part in call.args]
            return function.attr == "forward" or any(
                has(part, "tensor") and not has(part, "number", "size") for part in data
            )
    return False


def _data_arguments(facts: Facts, call: ast.Call) -> list[ast.expr]:
    carried = carried_names(facts, call)
    # f(*xs) is shared out as f(*reparto.shard(xs))
    positional = [part.value if isinstance(part, ast.Starred) else part for part in call.args]
    candidates = [*positional, *(keyword.value for keyword in call.keywords)]
    return [
        part
        for index, part in enumerate(candidates)
        if not (index and _SHARED_BY_ALL.search(facts.source(part).snippet(part)))
        and not isinstance(part, ast.Constant | ast.Lambda)
        and not (isinstance(part, ast.Name) and part.id in carried)
        and not only(
            facts.evaluate(part), "number", "size", "function", "class", "model", "external"
        )
    ]
