"""Reaching definitions in structured code: which bindings a use of a name can see."""

from __future__ import annotations

import ast

from reparto.convert.gather._scopes import Binding, Scope

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def reaching(use: ast.Name, scope: Scope, owner: Scope, bindings: list[Binding]) -> list[Binding]:
    """The bindings of a name that may be live at a use.

    A plain assignment in a block around the use hides what came before it. What comes after
    the use counts only when a loop leads back to the use without passing that assignment.

    Args:
        use: The name that is read.
        scope: The scope in which it is read.
        owner: The scope that binds it.
        bindings: All bindings there.
    """
    if len(bindings) < 2:
        return bindings
    if scope is not owner or not isinstance(use.ctx, ast.Load):
        return _final(bindings, owner)
    source = owner.source
    around = {id(use): use, **{id(node): node for node in source.ancestors(use)}}
    hiding: Binding | None = None
    for binding in bindings:
        if binding.kind not in ("assign", "for", "with", "import") or binding.scope is not owner:
            continue
        statement = binding.node
        parent = source.parents.get(statement)
        if binding.kind in ("for", "with"):
            if id(statement) not in around or _in_header(use, statement, around):
                continue
        elif not (id(parent) in around and _before(binding, use) and id(statement) not in around):
            continue
        if binding.kind not in ("for", "with") and not _same_branch(statement, parent, around):
            continue
        if hiding is None or _line(hiding) <= _line(binding):
            hiding = binding
    if hiding is None:
        return bindings
    loops = [node for node in around.values() if isinstance(node, _LOOPS)]
    inside_hiding = {id(node) for node in source.ancestors(hiding.node)}
    if hiding.kind == "for":
        inside_hiding.add(id(hiding.node))
    live = [hiding]
    for binding in bindings:
        if binding is hiding:
            continue
        position = _line(binding)
        if binding.kind == "item" or _line(hiding) < position <= use.lineno:
            live.append(binding)
        elif position > use.lineno:
            around_it = {id(node) for node in source.ancestors(binding.node)}
            if any(id(loop) in around_it and id(loop) not in inside_hiding for loop in loops):
                live.append(binding)
    return live


def _final(bindings: list[Binding], owner: Scope) -> list[Binding]:
    # Read from another scope (later): the last unconditional assignment hides those before it.
    body = getattr(owner.node, "body", None)
    top = body if isinstance(body, list) else []
    last = -1
    for index, binding in enumerate(bindings):
        if binding.kind == "assign" and binding.scope is owner and binding.node in top:
            last = index
    return bindings[last:] if last > 0 else bindings


def _line(binding: Binding) -> int:
    return getattr(binding.node, "lineno", 0) or getattr(binding.value, "lineno", 0)


def _before(binding: Binding, use: ast.Name) -> bool:
    end = getattr(binding.node, "end_lineno", None) or _line(binding)
    return end < use.lineno or (end == use.lineno and binding.node.end_col_offset < use.col_offset)  # type: ignore[attr-defined]


def _in_header(use: ast.Name, statement: ast.AST, around: dict[int, ast.AST]) -> bool:
    if isinstance(statement, ast.For):
        return id(statement.iter) in around or any(id(node) in around for node in statement.orelse)
    if isinstance(statement, ast.comprehension):
        return id(statement.iter) in around
    return False


def _same_branch(statement: ast.AST, parent: ast.AST | None, around: dict[int, ast.AST]) -> bool:
    # `if c: x = 1` / `else: use(x)`: the same parent, but not the same block.
    for name in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and statement in block:
            return any(id(node) in around for node in block)
    return True
