"""Of which commit a measured search is: where the reparto that is imported lies."""

from __future__ import annotations

import subprocess
from pathlib import Path

import reparto


def commit() -> str:
    """Short; with a plus where files of the package were changed since."""
    folder = Path(reparto.__file__).resolve().parent

    def told(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changed = told("status", "--porcelain", "--", str(folder))
    return told("rev-parse", "--short", "HEAD") + ("+" if changed else "")
