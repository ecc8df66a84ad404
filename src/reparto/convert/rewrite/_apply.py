"""Apply edits to a file's text."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from reparto.convert.gather import Source
from reparto.convert.rewrite._edits import Edit, Share, Wrap
from reparto.convert.rewrite._prologue import library_name, prologue

_WIDTH = 99


def apply(source: Source, edits: Iterable[Edit], *, is_script: bool) -> str:
    """The file's text with all edits made.

    Args:
        source: The file.
        edits: What to change; nothing at all for a file that stays as it is.
        is_script: Whether this is the script itself, which joins the workers' group.
    """
    edits = list(edits)
    if not edits and not is_script:
        return source.text
    name = library_name(source)
    # (offset, nesting, text): at one offset, outer prefixes come first, outer suffixes last.
    inserts: list[tuple[int, int, str]] = []
    for edit in edits:
        if isinstance(edit, Wrap):
            inserts += _wrap(source, edit, name)
        else:
            inserts.append(_share(source, edit, name))
    offset, text = prologue(source, name, is_script=is_script)
    inserts.append((offset, -len(source.text) - 1, text))
    out: list[str] = []
    last = 0
    for position, _, text in sorted(inserts, key=lambda insert: insert[:2]):
        out += (source.text[last:position], text)
        last = position
    out.append(source.text[last:])
    return "".join(out)


def _wrap(source: Source, edit: Wrap, name: str) -> list[tuple[int, int, str]]:
    start, end = source.span(edit.node)
    opening, closing = f"{name}.{edit.call}(", ")"
    if edit.dim:
        closing = f", dim={edit.dim})"
    if isinstance(edit.node, ast.Tuple) and source.text[start] != "(":
        opening, closing = opening + "(", ")" + closing
    if isinstance(edit.node, ast.Yield | ast.YieldFrom):
        opening, closing = opening + "(", ")" + closing
    if isinstance(edit.node, ast.GeneratorExp) and edit.dim:
        opening, closing = opening + "(", ")" + closing
    inserts: list[tuple[int, int, str]] = []
    if _too_long(source, edit.node, len(opening) + len(closing)):
        newline, indent = _indent(source, start)
        opening += newline + indent + "    "
        closing = newline + indent + closing.lstrip(",")
        if edit.dim:
            closing = f",{newline}{indent}    dim={edit.dim},{newline}{indent})"
    else:
        inserts = _keep_aligned(source, edit.node, len(opening))
    size = end - start
    return [*inserts, (start, -size, opening), (end, size - len(source.text), closing)]


def _keep_aligned(source: Source, node: ast.expr, width: int) -> list[tuple[int, int, str]]:
    # Lines that were aligned with the opening bracket move with it.
    assert node.end_lineno is not None
    if node.end_lineno == node.lineno or any(
        isinstance(part, ast.Constant | ast.JoinedStr) and part.end_lineno != part.lineno
        for part in ast.walk(node)
    ):
        return []
    starts = [source.line_starts[line] for line in range(node.lineno, node.end_lineno)]
    column = source.span(node)[0] - source.line_starts[node.lineno - 1]
    indents = [_indent(source, source.text.find(_first(source, at), at))[1] for at in starts]
    if any(len(indent) <= column for indent in indents):
        return []
    return [(at, 0, " " * width) for at in starts]


def _first(source: Source, at: int) -> str:
    return source.text[at:].lstrip(" \t")[:1]


def _too_long(source: Source, node: ast.expr, extra: int) -> bool:
    # Only the value of an assignment on one line is broken, as black would.
    parent = source.parents.get(node)
    if not isinstance(parent, ast.Assign) or parent.lineno != node.end_lineno:
        return False
    if parent.value is not node or source.text[source.span(node)[1] - 1] == "\\":
        return False
    start = source.line_starts[node.lineno - 1]
    end = source.span(node)[1]
    return end - start + extra > _WIDTH and source.span(parent)[1] == end


def _share(source: Source, edit: Share, name: str) -> tuple[int, int, str]:
    start = source.span(edit.before)[0]
    newline, indent = _indent(source, start)
    names = ", ".join(edit.names)
    value = names if len(edit.names) == 1 else f"({names})"
    return start, -len(source.text), f"{names} = {name}.shard({value}){newline}{indent}"


def _indent(source: Source, offset: int) -> tuple[str, str]:
    line = max(start for start in source.line_starts if start <= offset)
    text = source.text[line:offset]
    newline = "\r\n" if "\r\n" in source.text else "\n"
    return newline, text[: len(text) - len(text.lstrip())]
