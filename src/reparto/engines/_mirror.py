"""Mirror: the user's files on a host that has not all of them.

In the mirror, ``path`` of the driver lies at ``root + path``. Links lead from there to what the
host has itself, so relative paths keep working:

    driver                       a host that has /home/u/proj, but neither data nor train.py
    /home/u/proj/   (cwd)        root/home/u/proj/              the workers' cwd
    ├── train.py                 ├── train.py                   travelled with the call
    ├── data/x.csv               ├── data/x.csv                 travelled: --ship data
    └── notes.txt                └── notes.txt ─► /home/u/proj/notes.txt
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from reparto.engines._travel import Item, unpack
from reparto.spec import Program

MAX_LINKS = 1000  # of a folder above the one that is wanted


class Mirror:
    """A mirror; nothing of the host's own is changed.

    Args:
        root: Where it lies; made when something is put into it.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)

    def unfold(self, folder: str) -> str:
        """Make a folder real, with links to what this host has in it; return where it lies."""
        for level in (*reversed(Path(folder).parents), Path(folder)):
            place = f"{self.root}{level}"
            if os.path.islink(place):
                os.unlink(place)
            if not os.path.isdir(place):
                os.makedirs(place)
                self._link(level, place, some=str(level) != folder)
        return self.root + folder

    def _link(self, folder: Path, place: str, *, some: bool) -> None:
        with contextlib.suppress(OSError):
            names = os.listdir(folder)
            if some and len(names) > MAX_LINKS:
                return
            for name in names:
                if not self.root.startswith(str(folder / name)):
                    os.symlink(folder / name, os.path.join(place, name))

    def unpack(self, parcel: IO[bytes], items: Sequence[Item]) -> None:
        """Lay out an archive of items."""
        for folder in dict.fromkeys(os.path.dirname(item.path) for item in items):
            self.unfold(folder)
        for item in items:
            self._unlink(item.path)
        unpack(parcel, self.root)

    def lay_out(self, program: Program) -> Program:
        """Write those of a program's files that this host has not, or has otherwise.

        Returns:
            The program as it lies here: its files, and absolute paths in its arguments.
        """
        for file in program.files:
            if not _holds(file.path, file.original):
                self.unfold(os.path.dirname(file.path))
                self._unlink(file.path)
                Path(self.root + file.path).write_text(file.original, encoding="utf-8")
        return replace(
            program,
            script=self.at(program.script),
            args=tuple(self._argument(arg) for arg in program.args),
            files=tuple(replace(file, path=self.at(file.path)) for file in program.files),
        )

    def at(self, path: str) -> str:
        """Where a path of the driver lies on this host; itself if it is nowhere."""
        moved = self.root + path
        if os.path.lexists(moved) and not os.path.islink(moved):
            return moved
        if os.path.exists(path):
            return path
        folder = os.path.dirname(path)  # not there yet: it belongs where its folder is
        away = not os.path.isdir(folder) and os.path.isdir(self.root + folder)
        return moved if away else path

    def home(self, path: str) -> str:
        """The driver's name for a path of this host."""
        return path.removeprefix(self.root)

    def _argument(self, arg: str) -> str:
        option, equals, value = arg.partition("=") if arg.startswith("-") else ("", "", arg)
        return f"{option}{equals}{self.at(value)}" if os.path.isabs(value) else arg

    def _unlink(self, path: str) -> None:
        if os.path.islink(self.root + path):
            os.unlink(self.root + path)


def _holds(path: str, text: str) -> bool:
    with contextlib.suppress(OSError):
        return Path(path).read_bytes().decode(errors="replace") == text
    return False
