"""The difference that a conversion makes, as people read it."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from reparto.spec import Program


def diff(program: Program) -> str:
    """Unified diff over all changed files, paths relative to the script's folder."""
    folder = Path(program.script).parent
    out: list[str] = []
    for file in program.files:
        if not file.changed:
            continue
        name = Path(os.path.relpath(file.path, folder)).as_posix()
        lines = difflib.unified_diff(
            file.original.splitlines(),
            file.converted.splitlines(),
            f"a/{name}",
            f"b/{name}",
            lineterm="",
        )
        out += lines
    return "\n".join(out) + "\n" if out else ""
