"""Post: the first that runs on a host of a cluster, before reparto is known to be there.

It travels as code, not by name, so it may use nothing but the standard library:

    driver ── Post, our own sources as a zip ──► host: the same sources installed? use them
                                                       else unpack, and put them on the path
    driver ── call(name, …) ───────────────────► `_site.Site`, which does the work
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

PACKAGE = "reparto"


def digest(folder: Path) -> str:
    """Tell the sources of a package from those of another version."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        found.update(f"{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def archive(folder: Path) -> bytes:
    """Pack the sources of a package."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        for path in sorted(folder.rglob("*.py")):
            file.write(path, Path(folder.name, path.relative_to(folder)))
    return packed.getvalue()


class Post:
    """Stands on a host as an actor, and passes calls on to a `Site`.

    Args:
        expected: The `digest` of the driver's own sources.
        sources: The same as an `archive`.
    """

    def __init__(self, expected: str, sources: bytes) -> None:
        self._folder = ""
        installed = importlib.util.find_spec(PACKAGE)
        origin = installed.origin if installed is not None else None
        if origin is None or digest(Path(origin).parent) != expected:
            self._folder = tempfile.mkdtemp(prefix="reparto-sources-")
            with zipfile.ZipFile(io.BytesIO(sources)) as file:
                file.extractall(self._folder)
            sys.path.insert(0, self._folder)
            importlib.invalidate_caches()
        from reparto.engines._site import Site

        self._site = Site(sources=self._folder)

    def call(self, name: str, *args: Any) -> Any:
        """Do what `Site` has under this name."""
        return getattr(self._site, name)(*args)

    def close(self) -> int:
        """Leave nothing behind; return the number of the process, which can be killed now."""
        self._site.close()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        return os.getpid()
