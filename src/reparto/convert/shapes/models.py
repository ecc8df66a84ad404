"""Models are prepared where they get their name, once finished."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather import _library as library
from reparto.convert.gather._values import Value, Values
from reparto.convert.rewrite import Wrap
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._codes import diagnostic
from reparto.convert.shapes._constructions import to_prepare
from reparto.convert.shapes._names import target_name
from reparto.spec import Finding

ORDER = 11

_OWNS_PARAMETERS = {"parameters", "named_parameters"}
_IS_USED = _OWNS_PARAMETERS | {"train", "eval", "state_dict", "load_state_dict", "zero_grad"}


def find(facts: Facts) -> Decision:
    """Wrap each model that is trained or called in ``reparto.prepare``."""
    decision = Decision()
    used, owners = _used(facts)
    done: set[ast.expr] = set()
    for call in facts.calls:
        made = [value for value in facts.evaluate(call) if value.origin is call]
        model = next((value for value in made if _is_model(value, used, owners)), None)
        if facts.external_name(call.func) in library.DATA_PARALLEL:
            decision.diagnostics.append(diagnostic("C101", facts.place(call)))
        if model is None:
            continue
        for node in to_prepare(facts, call):
            if node in done or facts.inside_module_class(node):
                continue
            done.add(node)
            decision.edits.append(Wrap(node, "prepare"))
            decision.findings.append(
                Finding(
                    kind="model",
                    name=target_name(facts, node) or model.name.rsplit(".", 1)[-1],
                    detail=facts.source(call).snippet(call),
                    place=facts.place(node),
                    rewritten="prepared: the same parameters on every worker",
                )
            )
    return decision


def _is_model(value: Value, used: set[ast.AST], owners: set[ast.AST]) -> bool:
    if value.kind == "model":
        return value.origin in (owners if library.is_loss(value.name) else used)
    return value.kind == "opaque" and value.origin in owners


def _used(facts: Facts) -> tuple[set[ast.AST], set[ast.AST]]:
    used: set[ast.AST] = set()
    owners: set[ast.AST] = set()
    for call in facts.calls:
        function = call.func
        if facts.inside_module_class(call):
            continue
        if isinstance(function, ast.Attribute) and function.attr in _IS_USED:
            origins = _origins(facts.evaluate(function.value))
            used |= origins
            if function.attr in _OWNS_PARAMETERS:
                owners |= origins
        values = facts.evaluate(function)
        used |= _origins(frozenset(value for value in values if value.kind == "model"))
        if isinstance(function, ast.Attribute):  # model.loss(x)
            base = facts.evaluate(function.value)
            used |= _origins(frozenset(v for v in base if v.kind == "model" and v.scope))
    return used, owners


def _origins(values: Values) -> set[ast.AST]:
    return {value.origin for value in values if value.origin is not None}
