"""How the user calls a thing: the target of the assignment around an expression."""

from __future__ import annotations

import ast

from reparto.convert.gather import Facts


def target_name(facts: Facts, node: ast.expr) -> str:
    """Text of what an expression is assigned to; empty if it is not assigned."""
    inner: ast.AST = node
    for around in facts.ancestors(node):
        if isinstance(around, ast.Assign) and inner is around.value:
            return _aligned(around.targets[0], around.value, node)
        if isinstance(around, ast.AnnAssign | ast.NamedExpr) and inner is around.value:
            return ast.unparse(around.target)
        if isinstance(around, ast.keyword):
            return around.arg or ""
        if isinstance(around, ast.FunctionDef):
            return f"{around.name}()"
        if isinstance(around, ast.stmt):
            return ""
        inner = around
    return ""


def _aligned(target: ast.expr, value: ast.expr, node: ast.expr) -> str:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for name, part in zip(target.elts, value.elts, strict=False):
            if any(inner is node for inner in ast.walk(part)):
                return ast.unparse(name)
    return ast.unparse(target)
