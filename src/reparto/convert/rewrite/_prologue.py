"""Where ``import reparto`` and ``reparto.init()`` go, and under which name."""

from __future__ import annotations

import ast

from reparto.convert.gather import Source

_COMMENT = "  # joins the other workers; does nothing when there is one"


def library_name(source: Source) -> str:
    """The name under which a file calls reparto: an alias where the user took the name."""
    taken = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    taken |= {node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)}
    taken |= {
        node.name
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    if "reparto" not in taken:
        return "reparto"
    name = "reparto_"
    while name in taken:
        name += "_"
    return name


def prologue(source: Source, name: str, *, is_script: bool) -> tuple[int, str]:
    """Offset and text of what is put in front of the first statement of a file.

    Docstring and ``from __future__`` imports stay in front: Python wants them first.
    """
    newline = "\r\n" if "\r\n" in source.text else "\n"
    line = "import reparto" if name == "reparto" else f"import reparto as {name}"
    text = line + newline
    if is_script:
        text += f"{newline}{name}.init(){_COMMENT}{newline}{newline}"
    body = source.tree.body
    index = 0
    if body and _is_docstring(body[0]):
        index = 1
    while index < len(body) and _is_future(body[index]):
        index += 1
    if index == len(body):
        return len(source.text), newline + text
    first = body[index]
    decorators = getattr(first, "decorator_list", [])
    line_number = min([first.lineno, *(part.lineno for part in decorators)])
    if index and line_number == body[index - 1].end_lineno:  # "doc"; import torch
        start = source.span(first)[0]
        return start, text.replace(newline, "; ").replace(_COMMENT, "").replace("; ; ", "; ")
    return source.line_starts[line_number - 1], text


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"
