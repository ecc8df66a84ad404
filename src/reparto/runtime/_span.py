"""How many steps a script will make: the lengths of the loops around a step, multiplied.

    for epoch in range(args.epochs):       30
        for x, y in loader:              × 235
            …
            optimizer.step()             7050 steps

Read from the frames of the script while it stands in a step. Only what can be looked at without
doing anything is looked at: names, attributes, numbers, and calls that make counts and views.
"""

from __future__ import annotations

import ast
import linecache
import math
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

#: Calls that are harmless, and what they are as long as: their first argument.
_VIEWS = frozenset(
    "enumerate tqdm trange list tuple iter sorted reversed zip track shard shard_loader".split()
)
_COUNTS: dict[str, Any] = {"range": range, "len": len, "int": int, "min": min, "max": max}
_OPERATIONS: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
}


class _UnknownError(Exception):
    """It cannot be told by looking."""


def steps_of_script(folder: str = "") -> int | None:
    """Return how many steps the script makes, asked from inside one; None if that is unknown.

    Args:
        folder: Only files in there are looked at; empty for all that are not a library's.
    """
    frame: FrameType | None = sys._getframe()
    lengths: list[int] = []
    try:
        while frame is not None:
            if frame.f_code.co_filename.startswith(folder):
                lengths = [*_lengths(frame), *lengths]
            frame = frame.f_back
    except (_UnknownError, TypeError, ValueError, SyntaxError, ArithmeticError):
        return None
    return math.prod(lengths) if lengths else None


def _lengths(frame: FrameType) -> Iterator[int]:
    """Of the loops around the line where a frame of the script stands."""
    name = frame.f_code.co_filename
    if frame.f_globals.get("__name__", "").partition(".")[0] in ("reparto", "torch", "runpy"):
        return
    lines = linecache.getlines(name, frame.f_globals)
    if not lines or "site-packages" in name or name.startswith(sys.base_prefix):
        return
    for loop in _loops(ast.parse("".join(lines)), frame.f_code.co_firstlineno, frame.f_lineno):
        if isinstance(loop, ast.While):
            raise _UnknownError
        yield len(_value(loop.iter, frame))


def _loops(tree: ast.Module, first: int, line: int) -> Iterator[ast.For | ast.While]:
    """The loops of the function that begins at a line, around another line, the outer first."""
    scope: ast.AST = tree
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            begins = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if begins == first and node.lineno <= line <= (node.end_lineno or 0):
                scope = node
    yield from _around(scope, line)


def _around(scope: ast.AST, line: int) -> Iterator[ast.For | ast.While]:
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        begin, end = getattr(child, "lineno", 0), getattr(child, "end_lineno", 0) or 0
        if not begin <= line <= end:
            continue
        if isinstance(child, (ast.For, ast.While)) and line >= child.body[0].lineno:
            yield child
        yield from _around(child, line)


def _value(node: ast.expr, frame: FrameType) -> Any:
    """What an expression is, found by looking only."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        for names in (frame.f_locals, frame.f_globals):
            if node.id in names:
                return names[node.id]
        raise _UnknownError
    if isinstance(node, (ast.List, ast.Tuple)) and not any(
        isinstance(one, ast.Starred) for one in node.elts
    ):
        return node.elts  # as long as what it will be
    if isinstance(node, ast.Attribute):
        return getattr(_value(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript):
        return _value(node.value, frame)[_value(node.slice, frame)]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        make = _OPERATIONS[type(node.op)]
        return make(_value(node.left, frame), _value(node.right, frame))
    if isinstance(node, ast.Call) and node.args:
        return _called(node, frame)
    raise _UnknownError


def _called(node: ast.Call, frame: FrameType) -> Any:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _COUNTS:
        return _COUNTS[name](*(_value(one, frame) for one in node.args))
    if name == "trange":
        return range(*(_value(one, frame) for one in node.args))
    if name in _VIEWS:
        return _value(node.args[0], frame)
    raise _UnknownError
