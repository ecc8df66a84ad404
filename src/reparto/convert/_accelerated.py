"""The script as an accelerated run takes it: numbers come later if nothing waits for them.

``total += loss.item()`` becomes ``total += reparto.later(loss, total)``, and behind the loop
stands ``total = reparto.now(total)``. Only sums are changed, and lists that are only appended
to, of variables that the loop does nothing else with; what else a script does with a number, it
does with the number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from reparto.convert.gather import Source
from reparto.convert.rewrite._prologue import library_name, prologue

_LOOPS = (ast.For, ast.While, ast.AsyncFor)
_LEAVES = (ast.Return, ast.Yield, ast.YieldFrom)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, eq=False)
class _Delay:
    """Numbers of a loop that may come later.

    Attributes:
        loop: The loop behind which they are needed.
        name: The variable that they are added to or appended to.
        reads: The calls of ``item()``.
    """

    loop: ast.stmt
    name: str
    reads: tuple[ast.Call, ...]


def accelerated(source: Source, *, is_script: bool) -> str:
    """The file's text with numbers that come later.

    Args:
        source: The file.
        is_script: Whether this is the script itself.
    """
    delays = [delay for loop in _trainings(source.tree) for delay in _delays(source, loop)]
    if not delays:
        return source.text
    name = library_name(source)
    inserts: list[tuple[int, int, str]] = []
    for delay in delays:
        for read in delay.reads:
            assert isinstance(read.func, ast.Attribute)
            start, end = source.span(read)
            inserts.append((start, 0, f"{name}.later("))
            dot = source.text.rfind(".", source.span(read.func.value)[1], end)
            inserts.append((dot, end, f", {delay.name})"))
        inserts.append(_behind(source, delay, name))
    offset, text = prologue(source, name, is_script=is_script)
    inserts.append((offset, 0, text))
    return _applied(source.text, inserts)


def _applied(text: str, inserts: list[tuple[int, int, str]]) -> str:
    """Each insert is where, where what follows goes on (0: right there), and what."""
    out: list[str] = []
    last = 0
    for position, goes_on, added in sorted(inserts, key=lambda insert: insert[0]):
        out += (text[last:position], added)
        last = goes_on or position
    out.append(text[last:])
    return "".join(out)


def _behind(source: Source, delay: _Delay, name: str) -> tuple[int, int, str]:
    """A statement of its own behind the loop."""
    start, end = source.span(delay.loop)
    line = max(begin for begin in source.line_starts if begin <= start)
    indent = source.text[line:start]
    newline = "\r\n" if "\r\n" in source.text else "\n"
    stops = source.text.find("\n", end)
    end = len(source.text) if stops < 0 else stops + 1
    before = newline if stops < 0 else ""
    return end, 0, f"{before}{indent}{delay.name} = {name}.now({delay.name}){newline}"


def _trainings(tree: ast.Module) -> Iterator[ast.stmt]:
    """Loops that step an optimizer themselves, or in a function that they call; the innermost."""
    steppers = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _trains(node, set())
    }
    for node in ast.walk(tree):
        if not isinstance(node, _LOOPS) or not _trains(node, steppers):
            continue
        inner = [one for one in _own(node.body) if isinstance(one, _LOOPS)]
        if not any(_trains(one, steppers) for one in inner):
            yield node


def _trains(node: ast.AST, steppers: set[str]) -> bool:
    for part in ast.walk(node):
        if not isinstance(part, ast.Call):
            continue
        if isinstance(part.func, ast.Attribute) and part.func.attr == "backward":
            return True
        called = part.func.attr if isinstance(part.func, ast.Attribute) else ""
        called = part.func.id if isinstance(part.func, ast.Name) else called
        if called in steppers:
            return True
    return False


def _own(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes of a body, without functions that are only defined in it."""
    for statement in body:
        if isinstance(statement, _SCOPES):
            continue
        yield statement
        for child in ast.iter_child_nodes(statement):
            yield from _own([child])  # type: ignore[list-item]


def _delays(source: Source, loop: ast.stmt) -> Iterator[_Delay]:
    body: list[ast.stmt] = loop.body  # type: ignore[attr-defined]
    start = source.span(loop)[0]
    line = max(begin for begin in source.line_starts if begin <= start)
    if source.text[line:start].strip():
        return  # a loop behind a semicolon: there is no line to put anything behind
    found: dict[str, list[ast.Call]] = {}
    sites: dict[str, set[ast.AST]] = {}
    for node in _own(body):
        target = _sum_of(node) or _list_of(node)
        if target is None:
            continue
        name, value = target
        reads = [one for one in _product(value) if isinstance(one, ast.Call) and _is_item(one)]
        if reads:
            found.setdefault(name, []).extend(reads)
            sites.setdefault(name, set()).add(node)
    for name, reads in found.items():
        if _only_collects(loop, name, sites[name]):
            yield _Delay(loop, name, tuple(reads))


def _sum_of(node: ast.AST) -> tuple[str, ast.expr] | None:
    if not isinstance(node, ast.AugAssign) or not isinstance(node.target, ast.Name):
        return None
    return (node.target.id, node.value) if isinstance(node.op, ast.Add) else None


def _list_of(node: ast.AST) -> tuple[str, ast.expr] | None:
    call = node.value if isinstance(node, ast.Expr) else None
    if (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "append"
        and isinstance(call.func.value, ast.Name)
        and len(call.args) == 1
        and not call.keywords
    ):
        return call.func.value.id, call.args[0]
    return None


def _product(value: ast.expr) -> Iterator[ast.expr]:
    """A number, and the factors of a product."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Mult, ast.Div)):
        yield from _product(value.left)
        if isinstance(value.op, ast.Mult):
            yield from _product(value.right)
        return
    yield value


def _is_item(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "item"
        and not node.args
        and not node.keywords
    )


def _only_collects(loop: ast.stmt, name: str, sites: set[ast.AST]) -> bool:
    """Whether a loop does nothing with a variable but collect numbers in it."""
    inside = {part for site in sites for part in ast.walk(site)}
    for node in ast.walk(loop):
        if isinstance(node, (ast.Global, ast.Nonlocal)) and name in node.names:
            return False
        if isinstance(node, ast.Name) and node.id == name and node not in inside:
            return False
    for site in sites:
        uses = [one for one in ast.walk(site) if isinstance(one, ast.Name) and one.id == name]
        if len(uses) != 1:
            return False
    return not any(isinstance(node, _LEAVES) for node in ast.walk(loop))
