"""Functions of the user's: their own nodes, and what a call passes for a parameter."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from reparto.convert.gather._scopes import FUNCTIONS, Scope


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function, class or module except those of functions defined in it."""
    stack = list(ast.iter_child_nodes(node))
    while stack:
        current = stack.pop()
        yield current
        if not isinstance(current, FUNCTIONS):
            stack.extend(ast.iter_child_nodes(current))


def argument_for(function: Scope, name: str, call: ast.Call, *, bound: bool) -> ast.expr | None:
    """The expression that a call passes for a parameter, if it can be seen."""
    assert isinstance(function.node, FUNCTIONS)
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    arguments = function.node.args
    positional = [parameter.arg for parameter in [*arguments.posonlyargs, *arguments.args]]
    if bound and "staticmethod" not in decorators(function.node):
        positional = positional[1:]
    if name in positional:
        index = positional.index(name)
        if any(isinstance(part, ast.Starred) for part in call.args[: index + 1]):
            return None
        return call.args[index] if index < len(call.args) else None
    if arguments.vararg is not None and arguments.vararg.arg == name:
        rest = call.args[len(positional) :]
        return rest[0] if rest else None
    return None


def decorators(node: ast.AST) -> set[str]:
    """The plain names among a function's decorators: ``property``, ``staticmethod``."""
    return {part.id for part in getattr(node, "decorator_list", ()) if isinstance(part, ast.Name)}
