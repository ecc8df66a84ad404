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
import pickle
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


def at_hand(expected: str, sources: bytes) -> str:
    """Let our package be importable here; return the folder that was made for it, if any."""
    installed = importlib.util.find_spec(PACKAGE)
    origin = installed.origin if installed is not None else None
    if origin is not None and digest(Path(origin).parent) == expected:
        return ""
    folder = tempfile.mkdtemp(prefix="reparto-sources-")
    with zipfile.ZipFile(io.BytesIO(sources)) as file:
        file.extractall(folder)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    return folder


class Post:
    """Stands on a host as an actor, and passes calls on to a `Site`.

    Args:
        expected: The `digest` of the driver's own sources.
        sources: The same as an `archive`.
    """

    def __init__(self, expected: str, sources: bytes) -> None:
        self._folder = at_hand(expected, sources)
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


class Lodger:
    """Stands on a host as an actor, and passes calls on to an object of ours that it makes there.

    Args:
        expected: The `digest` of the driver's own sources.
        sources: The same as an `archive`.
        path: Where else modules are found, on a host that sees the same files.
        packed: What is made, pickled: a callable and its first arguments.
        more: Further arguments, as Ray hands them over.
    """

    def __init__(
        self, expected: str, sources: bytes, path: tuple[str, ...], packed: bytes, *more: Any
    ) -> None:
        self._folder = at_hand(expected, sources)
        sys.path.extend(each for each in path if each not in sys.path)
        make, given = pickle.loads(packed)
        self._object = make(*given, *more)

    def call(self, name: str, packed: bytes) -> Any:
        """Do what the object has under this name."""
        return getattr(self._object, name)(*pickle.loads(packed))

    def close(self) -> int:
        """Leave nothing behind; return the number of the process, which can be killed now."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        return os.getpid()
