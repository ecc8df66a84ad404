"""From the call that constructs a thing to the expression that is to be prepared.

model = build(cfg).to(device)      def build(cfg):
        └────── wrapped ────┘          return Net(cfg)   ← the construction
"""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts
from reparto.convert.gather import _library as library


def to_prepare(facts: Facts, construction: ast.Call) -> list[ast.expr]:
    """The expressions around a construction that hand the finished object to a name."""
    found: list[ast.expr] = []
    _climb(facts, construction, found, set())
    return found


def _climb(facts: Facts, node: ast.expr, found: list[ast.expr], seen: set[ast.expr]) -> None:
    if node in seen:
        return
    seen.add(node)
    node = chain(facts, node)
    parent = facts.parent(node)
    while isinstance(parent, ast.IfExp | ast.BoolOp):
        if isinstance(parent, ast.IfExp) and parent.test is node:
            return
        outer = facts.parent(parent)
        if isinstance(outer, ast.Return):
            break
        parent = outer
    if isinstance(parent, ast.Return | ast.Lambda):
        function = facts.scope_of[node].function()
        callers = facts.evaluator.callers.get(function, [])
        for call in callers:
            if not facts.inside_module_class(call):
                _climb(facts, call, found, seen)
        if not callers and not facts.inside_module_class(node):
            found.append(node)
    elif _is_destination(facts, parent, node):
        found.append(node)


def chain(facts: Facts, node: ast.expr) -> ast.expr:
    """The whole chain around an object: ``torch.compile(Net().to(device))`` for ``Net()``."""
    while True:
        parent = facts.parent(node)
        if isinstance(parent, ast.Attribute):
            call = facts.parent(parent)
            if (
                isinstance(call, ast.Call)
                and call.func is parent
                and parent.attr in library.SELF_RETURNING
            ):
                node = call
                continue
        elif (
            isinstance(parent, ast.Call)
            and parent.args
            and parent.args[0] is node
            and facts.external_name(parent.func) in library.PASSED_THROUGH
        ):
            node = parent
            continue
        return node


def _is_destination(facts: Facts, parent: ast.AST | None, node: ast.expr) -> bool:
    if isinstance(parent, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        return True
    if isinstance(parent, ast.Tuple | ast.List | ast.Dict | ast.ListComp | ast.DictComp):
        return _holds(facts, parent)
    if isinstance(parent, ast.keyword):
        parent = facts.parent(parent)
    if isinstance(parent, ast.Call) and parent.func is not node:
        kinds = {value.kind for value in facts.evaluate(parent.func)}
        if kinds & {"function", "class"}:
            return not _constructs_module(facts, parent)
        function = parent.func
        return isinstance(function, ast.Attribute) and function.attr in ("append", "add")
    return False


def _holds(facts: Facts, container: ast.AST) -> bool:
    # A list of layers that goes into nn.Sequential is not a list of models.
    parent = facts.parent(container)
    if isinstance(parent, ast.keyword | ast.Starred):
        parent = facts.parent(parent)
    if isinstance(parent, ast.Call):
        return not _constructs_module(facts, parent)
    return True


def _constructs_module(facts: Facts, call: ast.Call) -> bool:
    return any(value.kind == "model" and value.origin is call for value in facts.evaluate(call))
