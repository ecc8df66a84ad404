"""The user's files: the script, and each module of theirs that it imports."""

from __future__ import annotations

import ast
import re
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from reparto.convert.gather._folders import Folders
from reparto.spec import Place

_NEWLINE = re.compile(r"\r\n|\r|\n")
_MAX_MODULES = 200  # a script that drags in more than this is a framework


class SourceError(Exception):
    """A file of the user's could not be parsed; ``place`` says where."""

    def __init__(self, reason: str, place: Place, text: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.place = place
        self.text = text


@dataclass(eq=False)
class Source:
    """One file: its text, its syntax tree, and where nodes lie in the text."""

    path: Path
    module: str
    text: str
    tree: ast.Module
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of the first character of each line."""
        return [0] + [match.end() for match in _NEWLINE.finditer(self.text)]

    @property
    def is_package(self) -> bool:
        """Whether this file is a package's ``__init__``."""
        return self.path.name == "__init__.py"

    def offset(self, line: int, column: int) -> int:
        """Turn the tree's position (columns count UTF-8 bytes) into an offset in the text."""
        start = self.line_starts[line - 1]
        end = self.line_starts[line] if line < len(self.line_starts) else len(self.text)
        text = self.text[start:end]
        if text.isascii():
            return start + column
        return start + len(text.encode()[:column].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Offsets of a node's first character and of the one after its last."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self.offset(node.lineno, node.col_offset),
            self.offset(node.end_lineno, node.end_col_offset),
        )

    def place(self, node: ast.AST) -> Place:
        """Where a node begins, for people."""
        line = getattr(node, "lineno", 1)
        column = getattr(node, "col_offset", 0)
        start = self.line_starts[line - 1]
        return Place(file=str(self.path), line=line, column=self.offset(line, column) - start + 1)

    def snippet(self, node: ast.expr | ast.stmt, limit: int = 60) -> str:
        """The node's text on one line, cut to a readable length."""
        start, end = self.span(node)
        text = " ".join(self.text[start:end].split())
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent


def load(script: Path, *, anywhere: bool = False) -> list[Source]:
    """Read the script and, through its imports, every module of the user's own.

    Args:
        script: Absolute.
        anywhere: Look for modules wherever this Python finds them, but not among those that are
            installed; otherwise only where the script's folder and its text lead.

    Raises:
        SourceError: If a file has a syntax error.
        OSError: If the script cannot be read.
    """
    folders = Folders(script, anywhere=anywhere)
    sources = [_parse(script, "__main__")]
    seen = {script}
    for source in sources:
        folders.learn(source.path, source.tree)
        for name in _imported_names(source):
            root = folders.of(name.partition(".")[0])
            for path, module in _find(root, name) if root is not None else ():
                if path not in seen and len(sources) < _MAX_MODULES:
                    seen.add(path)
                    sources.append(_parse(path, module))
    return sources


def parse(text: str, path: Path) -> ast.Module:
    """Parse Python source without printing the warnings that running it will print."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, filename=str(path))


def read_text(path: Path) -> str:
    """Read Python source in its own encoding, keeping its line ends."""
    raw = path.read_bytes()
    with path.open("rb") as file:
        encoding, _ = tokenize.detect_encoding(file.readline)
    return raw.decode(encoding)


def absolute_module(source: Source, node: ast.ImportFrom) -> str:
    """The dotted name of the module that ``from … import`` reads, dots resolved."""
    if not node.level:
        return node.module or ""
    parts = source.module.split(".") if source.module != "__main__" else []
    drop = node.level - 1 if source.is_package else node.level
    base = parts[: len(parts) - drop] if drop else parts
    return ".".join([*base, node.module] if node.module else base)


def _parse(path: Path, module: str) -> Source:
    text = ""
    try:
        text = read_text(path)
        tree = parse(text, path)
    except SyntaxError as error:
        place = Place(file=str(path), line=error.lineno or 1, column=max(error.offset or 1, 1))
        raise SourceError(error.msg, place, text) from error
    except (ValueError, RecursionError) as error:  # null bytes, wrong encoding, absurd nesting
        raise SourceError(str(error), Place(file=str(path), line=1), text) from error
    source = Source(path=path, module=module, text=text, tree=tree)
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            source.parents[child] = parent
    return source


def _imported_names(source: Source) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = absolute_module(source, node)
            if base:
                yield base
            prefix = f"{base}." if base else ""
            yield from (prefix + alias.name for alias in node.names if alias.name != "*")


def _find(root: Path, name: str) -> Iterator[tuple[Path, str]]:
    # Yields each package on the way to the module too: importing a.b runs a/__init__.py.
    folder = root
    parts = name.split(".")
    for depth, part in enumerate(parts, start=1):
        module = ".".join(parts[:depth])
        package = folder / part / "__init__.py"
        if package.is_file():
            yield package, module
        elif (file := folder / f"{part}.py").is_file():
            yield file, module
            return
        elif not (folder / part).is_dir():
            return
        folder = folder / part
