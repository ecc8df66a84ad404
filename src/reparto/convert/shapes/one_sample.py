"""Training on one sample at a time: there is no batch to share out."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather._functions import own_nodes
from reparto.convert.gather._loops import Loop
from reparto.convert.gather._values import elements, only
from reparto.convert.shapes._base import Decision
from reparto.convert.shapes._batch_dimension import carried_names
from reparto.convert.shapes._codes import diagnostic

ORDER = 84

_FILLED = {"torch.zeros", "torch.ones", "torch.randn", "torch.rand"}


def find(facts: Facts) -> Decision:
    """Refuse only where it is certain that every model call sees a single sample."""
    singles: list[ast.Call] = []
    for call in facts.calls:
        if not facts.trains(call) or facts.inside_module_class(call):
            continue
        if "model" not in facts.effects.direct(call) or facts.without_gradient(call):
            continue
        if not _is_single(facts, call):
            return Decision()
        singles.append(call)
    if singles:
        first = singles[0]
        text = facts.source(first).snippet(first, 50)
        return Decision(diagnostics=[diagnostic("C204", facts.place(first), call=text)])
    for loop in facts.training:
        if _over_numbers(facts, loop):
            text = facts.source(loop.node).snippet(loop.node.iter, 50)  # type: ignore[union-attr]
            return Decision(diagnostics=[diagnostic("C204", facts.place(loop.node), call=text)])
    return Decision()


def _over_numbers(facts: Facts, loop: Loop) -> bool:
    # for x, y in zip([1.0, 2.0], [2.0, 4.0]):
    if isinstance(loop.node, ast.While) or _is_range(loop.node.iter):
        return False
    yielded = elements(facts.evaluate(loop.node.iter))
    parts = [part for value in yielded for part in value.parts] or [yielded]
    return all(only(part, "number") for part in parts)


def _is_range(node: ast.expr) -> bool:
    return "range" in ast.unparse(node)


def _is_single(facts: Facts, call: ast.Call) -> bool:
    if call.args and _adds_batch_of_one(facts, call.args[0]):
        return True
    return any(_state_of_one(facts, call, name) for name in carried_names(facts, call))


def _adds_batch_of_one(facts: Facts, node: ast.expr) -> bool:
    """``x[i].unsqueeze(0)``, ``x[i][None]``, ``x[i].view(1, -1)`` with a single ``x[i]``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        first = node.args[0] if node.args else None
        expected = {"unsqueeze": 0, "view": 1, "reshape": 1}.get(node.func.attr)
        if expected is not None and isinstance(first, ast.Constant) and first.value == expected:
            return _is_element(facts, node.func.value)
    if isinstance(node, ast.Subscript) and getattr(node.slice, "value", 0) is None:
        return _is_element(facts, node.value)
    return False


def _is_element(facts: Facts, node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Name):
        return only(facts.evaluate(node.slice), "number")
    return False


def _state_of_one(facts: Facts, call: ast.Call, name: str) -> bool:
    # hidden = rnn.initHidden()  with  return torch.zeros(1, self.hidden_size)
    scope = facts.scope_of[call].function()
    for binding in scope.bindings.get(name, ()):
        if isinstance(binding.value, ast.Call) and _makes_one(facts, binding.value):
            return True
    return False


def _makes_one(facts: Facts, call: ast.Call) -> bool:
    if facts.external_name(call.func) in _FILLED:
        return _leading_ones(call)
    for function in facts.evaluator.callees(call):
        for node in own_nodes(function.node):
            if isinstance(node, ast.Return) and node.value is not None:
                made = [part for part in ast.walk(node.value) if isinstance(part, ast.Call)]
                if any(
                    facts.external_name(part.func) in _FILLED and _leading_ones(part)
                    for part in made
                ):
                    return True
    return False


def _leading_ones(call: ast.Call) -> bool:
    sizes: list[ast.expr] = list(call.args)
    if sizes and isinstance(sizes[0], ast.Tuple):
        sizes = list(sizes[0].elts)
    leading = sizes[:-1]
    return bool(leading) and all(getattr(size, "value", None) == 1 for size in leading)
