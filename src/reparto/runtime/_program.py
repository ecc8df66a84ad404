"""Runs the user's script, converted, so that it cannot tell: names, paths, lines, imports.

Converted code is compiled under the user's own file name with the user's own line numbers, so
tracebacks, warnings and profilers show what they wrote:

    train.py, theirs            what runs                   compiled with
    1  import torch             import reparto              line 1
    2  for x, y in loader:      import torch                line 1
    3      loss(x, y)           for x, y in loader:         line 2
                                    loss(x, y)              line 3
"""

from __future__ import annotations

import ast
import difflib
import linecache
import os
import sys
import tokenize
import types
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_file_location

from reparto.spec import Program, SourceFile


def run_script(program: Program) -> None:
    """Run a program's script as ``__main__``, as ``python script.py`` would.

    Whatever the script raises passes through, `SystemExit` too.
    """
    script = program.files[0] if program.files else _read(program.script)
    remember_sources(program)
    sys.argv[:] = [program.script, *program.args]
    # Symbolic links are resolved for the path only, as Python does it.
    sys.path.insert(0, os.path.dirname(os.path.realpath(program.script)))
    _install_finder(program)
    code = compile_source(script)

    # The worker's own module stays alive, under its real name; `__main__` is the script's.
    sys.modules.setdefault("reparto.runtime.worker", sys.modules["__main__"])
    main = types.ModuleType("__main__")
    main.__file__ = script.path
    main.__builtins__ = sys.modules["builtins"]  # type: ignore[attr-defined]
    main.__cached__ = None  # type: ignore[attr-defined]
    main.__loader__ = SourceFileLoader("__main__", script.path)
    main.__spec__ = None  # what spawned children look at, to run the file by its path
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _read(path: str) -> SourceFile:
    with tokenize.open(path) as file:
        text = file.read()
    return SourceFile(path=path, module="__main__", original=text, converted=text)


def remember_sources(program: Program) -> None:
    """Let tracebacks show the lines as they were converted, even if the files change."""
    for file in program.files:
        lines = file.original.splitlines(keepends=True)
        linecache.cache[file.path] = (len(file.original), None, lines, file.path)


def compile_source(file: SourceFile) -> types.CodeType:
    """Compile a file's converted text with the file name and the lines of the original."""
    if not file.changed:
        return compile(file.original.removeprefix("\ufeff"), file.path, "exec", dont_inherit=True)
    tree = ast.parse(file.converted.removeprefix("\ufeff"), file.path)
    _renumber(tree, line_map(_lines(file.original), _lines(file.converted)))
    return compile(tree, file.path, "exec", dont_inherit=True)


def line_map(original: Sequence[str], converted: Sequence[str]) -> dict[int, tuple[int, bool]]:
    """Map each line of the converted text to one of the original; lines count from 1.

    Returns:
        For each converted line the original line, and whether the two are the same text.
        An added line belongs to the original line that follows it; a changed one to the line
        in the same place.
    """
    matcher = difflib.SequenceMatcher(
        None, [line.strip() for line in original], [line.strip() for line in converted]
    )
    mapped: dict[int, tuple[int, bool]] = {}
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        for index in range(b, b_end):
            place = min(a + index - b, max(a_end - 1, a), len(original) - 1)
            same = tag == "equal" and original[place] == converted[index]
            mapped[index + 1] = (max(place, 0) + 1, same)
    return mapped


def _lines(text: str) -> list[str]:
    # As the parser counts them; str.splitlines() also splits at form feeds and the like.
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _renumber(tree: ast.AST, lines: Mapping[int, tuple[int, bool]]) -> None:
    for node in ast.walk(tree):
        line = getattr(node, "lineno", None)
        if line is None:
            continue
        end = getattr(node, "end_lineno", None) or line
        place, same = lines.get(line, (line, False))
        end_place, end_same = lines.get(end, (end, False))
        node.lineno = node.end_lineno = place  # type: ignore[attr-defined]
        if same and end_same and end_place >= place:
            node.end_lineno = end_place  # type: ignore[attr-defined]
        else:  # columns of another text would underline the wrong words
            node.col_offset = node.end_col_offset = -1  # type: ignore[attr-defined]


def _install_finder(program: Program) -> None:
    modules = program.files[1:]
    if not modules:
        return
    for file in modules:
        _forget_namesake(file)
    sys.meta_path.insert(0, _ConvertedFinder(modules))


def _forget_namesake(file: SourceFile) -> None:
    # The worker imported torch, and with it half of the standard library, before the user's
    # folder came on the path. Plain Python would have found a namesake of theirs first.
    name = file.module.partition(".")[0]
    loaded = sys.modules.get(name)
    origin = getattr(loaded, "__file__", None)
    if loaded is None or origin is None or name in ("reparto", "torch"):
        return
    frozen = loaded.__spec__ is not None and loaded.__spec__.origin == "frozen"
    folder = os.path.dirname(os.path.realpath(origin))
    if not frozen and not os.path.realpath(file.path).startswith(folder):
        del sys.modules[name]


class _ConvertedFinder(MetaPathFinder):
    """Finds the user's modules where Python would, and loads their converted text."""

    def __init__(self, files: Sequence[SourceFile]) -> None:
        self._by_path = {os.path.realpath(file.path): file for file in files}
        self._by_module = {file.module: file for file in files}

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            file = self._by_path.get(os.path.realpath(spec.origin))
        else:
            file = self._by_module.get(fullname)  # a host that has not the user's files
        if file is None:
            return None
        return spec_from_file_location(fullname, file.path, loader=_Loader(fullname, file))


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, file: SourceFile) -> None:
        super().__init__(fullname, file.path)
        self._file = file

    def get_code(self, fullname: str) -> types.CodeType:
        return compile_source(self._file)

    def get_source(self, fullname: str) -> str:
        return self._file.original
