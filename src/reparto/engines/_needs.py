"""Which paths a script names: in its arguments, and where its source reads a file.

Only those that exist here: what does not exist here cannot be missed elsewhere.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reparto.spec import Program

_READERS = re.compile(r"open$|load|read|from_?file$|genfromtxt$|imread$|memmap$|\w*Folder$")
_WRITES = re.compile(r"[wax]")
_INPUTS = re.compile(
    r"data|input|csv|corpus|train|val|test|vocab|resume|ckpt|pretrain|weight|conf"
)
_OUTPUTS = re.compile(r"out|save|log|dest|result")


@dataclass(frozen=True, kw_only=True)
class Need:
    """A path that exists here and that the script names.

    Attributes:
        named: As the script or its arguments say it.
        path: Absolute.
        where: ``an argument``, or file and line.
        fixed: Whether the script's source gives it as an absolute path: it has to lie just
            there on every host.
    """

    named: str
    path: str
    where: str
    fixed: bool = False


def needs(program: Program, cwd: str) -> tuple[Need, ...]:
    """Find the paths that a script names and that exist on this machine.

    Args:
        program: The script and its own modules; their sources as the user wrote them.
        cwd: The folder in which it starts.
    """
    found: dict[str, Need] = {}
    for text in _argument_values(program.args):
        _add(found, text, cwd, "an argument", fixed=False)
    for file in program.files:
        try:
            tree = ast.parse(file.original)
        except SyntaxError:  # the worker tells it better
            continue
        name = os.path.basename(file.path)
        for line, text in _literals(tree, program.args):
            _add(found, text, cwd, f"{name}:{line}", fixed=os.path.isabs(text))
    return tuple(found.values())


def _add(found: dict[str, Need], text: str, cwd: str, where: str, *, fixed: bool) -> None:
    path = os.path.abspath(os.path.join(cwd, text))
    is_path = text and not text.isdigit() and "\0" not in text and path != cwd
    if is_path and path not in found and os.path.exists(path):
        found[path] = Need(named=text, path=path, where=where, fixed=fixed)


def _argument_values(args: Sequence[str]) -> Iterator[str]:
    for arg in args:
        if not arg.startswith("-"):
            yield arg
        elif "=" in arg:
            yield arg.partition("=")[2]


def _literals(tree: ast.AST, args: Sequence[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = _last_name(node.func)
        if name == "add_argument":
            text = _default_input(node, args)
        elif _READERS.match(name) and not _is_writing(node, name):
            text = _first_string(node) or _path_of_method(node.func)
        else:
            continue
        if text is not None:
            yield node.lineno, text


def _last_name(func: ast.expr) -> str:
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _string(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _first_string(call: ast.Call) -> str | None:
    if call.args:
        return _string(call.args[0])
    given = (_string(keyword.value) for keyword in call.keywords if keyword.arg != "mode")
    return next((text for text in given if text is not None), None)


def _path_of_method(func: ast.expr) -> str | None:
    """The literal of ``Path("x").read_text()``."""
    owner = func.value if isinstance(func, ast.Attribute) else None
    if isinstance(owner, ast.Call) and _last_name(owner.func) == "Path" and len(owner.args) == 1:
        return _string(owner.args[0])
    return None


def _is_writing(call: ast.Call, name: str) -> bool:
    if name != "open":
        return False
    of_method = isinstance(call.func, ast.Attribute) and _path_of_method(call.func) is not None
    mode = _keyword(call, "mode")
    place = 0 if of_method else 1
    if mode is None and len(call.args) > place:
        mode = call.args[place]
    return bool(_WRITES.search(_string(mode) or "r"))


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _default_input(call: ast.Call, args: Sequence[str]) -> str | None:
    """The default of an option that names an input, unless the user gave another."""
    options = [text for arg in call.args if (text := _string(arg)) is not None]
    said = any(arg.partition("=")[0] in options for arg in args)
    name = " ".join(options).lower()
    if said or not _INPUTS.search(name) or _OUTPUTS.search(name):
        return None
    return _string(_keyword(call, "default"))
