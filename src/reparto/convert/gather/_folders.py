"""Where the user's own modules lie: beside the script, and wherever Python is told to look.

train.py                   import helpers            beside the script
sys.path.append("..")      import common             where the script says, if it says it plainly
PYTHONPATH, pip install -e                           where this Python finds it, but not among
installed packages
"""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ADDING = {"sys.path.append": 0, "sys.path.insert": 1}


class Folders:
    """Finds the folder in which a module of the user's own lies.

    Args:
        script: Absolute.
        anywhere: Whether to ask Python for what is not found otherwise.
    """

    def __init__(self, script: Path, *, anywhere: bool) -> None:
        self._folders = [script.parent]
        self._anywhere = anywhere
        self._elsewhere: dict[str, Path | None] = {}

    def learn(self, path: Path, tree: ast.Module) -> None:
        """Take up the folders that a file adds to ``sys.path``."""
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or len(node.args) <= (
                index := _ADDING.get(ast.unparse(node.func), sys.maxsize)
            ):
                continue
            value = _value(node.args[index], path)
            if isinstance(value, (str, Path)):
                folder = Path(os.path.abspath(value))
                if folder not in self._folders and not _is_installed(folder):
                    self._folders.append(folder)

    def of(self, name: str) -> Path | None:
        """The folder of a module or package, by its name without dots; None if not the user's."""
        for folder in self._folders:
            if (folder / f"{name}.py").is_file() or (folder / name).is_dir():
                return folder
        if not self._anywhere:
            return None
        if name not in self._elsewhere:
            self._elsewhere[name] = _found_by_python(name)
        return self._elsewhere[name]


def _found_by_python(name: str) -> Path | None:
    if name in sys.stdlib_module_names or name == "reparto" or not name.isidentifier():
        return None
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):  # a finder or a package that is broken
        return None
    if spec is None or not spec.has_location or spec.origin is None:
        return None
    origin = Path(os.path.abspath(spec.origin))
    if origin.suffix != ".py":
        return None
    folder = origin.parent.parent if spec.submodule_search_locations else origin.parent
    return None if _is_installed(folder) else folder


def _is_installed(folder: Path) -> bool:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    installed = [Path(sysconfig.get_path(name)) for name in names]
    inside = any(folder.is_relative_to(one) for one in installed)
    return inside or any(part in ("site-packages", "dist-packages") for part in folder.parts)


# The few expressions in which people name a folder.

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "os.path.abspath": os.path.abspath,
    "os.path.dirname": os.path.dirname,
    "os.path.join": os.path.join,
    "os.path.normpath": os.path.normpath,
    "os.path.realpath": os.path.realpath,
    "os.getcwd": os.getcwd,
    "Path": Path,
    "pathlib.Path": Path,
    "Path.cwd": Path.cwd,
    "str": str,
}
_METHODS = ("resolve", "absolute", "joinpath", "as_posix")


def _value(node: ast.expr, file: Path) -> Any:
    """What an expression is worth; None if it cannot be told so simply."""
    try:
        return _evaluated(node, file)
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, OSError):
        return None


def _evaluated(node: ast.expr, file: Path) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id="__file__"):
            return str(file)
        case ast.Attribute(attr="pardir"):
            return os.pardir
        case ast.Attribute(value=inner, attr="parent" | "parents" as attribute):
            return getattr(_evaluated(inner, file), attribute)
        case ast.Subscript(value=inner, slice=index):
            return _evaluated(inner, file)[_evaluated(index, file)]
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _evaluated(left, file) / _evaluated(right, file)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _evaluated(left, file) + _evaluated(right, file)
        case ast.Call(func=func, args=args, keywords=[]):
            values = [_evaluated(one, file) for one in args]
            if (name := ast.unparse(func)) in _FUNCTIONS:
                return _FUNCTIONS[name](*values)
            if isinstance(func, ast.Attribute) and func.attr in _METHODS:
                return getattr(_evaluated(func.value, file), func.attr)(*values)
    raise LookupError(ast.unparse(node))
