"""Which files a script has written: those that are newer than its launch."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

LIMIT_S = 0.5  # of looking through large folders
MAX_FILES = 200

_SKIPPED = {"__pycache__", "node_modules", "site-packages"}


def files_written_since(since_s: float, folders: Iterable[Path]) -> tuple[str, ...]:
    """Find the files written since a time, relative to the first folder where they lie in it.

    Args:
        since_s: Seconds since the epoch.
        folders: Where to look; folders within them too, but for hidden ones.
    """
    folders = [folder.resolve() for folder in folders]
    until = time.monotonic() + LIMIT_S
    found: dict[str, None] = {}
    for folder in dict.fromkeys(folders):
        for path in _files(folder, until):
            with contextlib.suppress(OSError):
                if os.stat(path).st_mtime >= since_s:
                    found[_shown(path, folders[0])] = None
            if len(found) >= MAX_FILES:
                return tuple(found)
    return tuple(found)


def _files(folder: Path, until: float) -> Iterator[str]:
    for root, names, files in os.walk(folder):
        names[:] = sorted(
            name for name in names if name not in _SKIPPED and not name.startswith(".")
        )
        if os.path.exists(os.path.join(root, "pyvenv.cfg")):
            names.clear()
            continue
        yield from (os.path.join(root, name) for name in sorted(files))
        if time.monotonic() > until:
            return


def _shown(path: str, folder: Path) -> str:
    inside = path.startswith(f"{folder}{os.sep}")
    return os.path.relpath(path, folder) if inside else path
