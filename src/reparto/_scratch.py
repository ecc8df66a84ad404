"""A scratch copy of the folder in which a script works, so that nothing of the user's changes.

The copy mirrors absolute paths under a root of its own: ``path`` lies at ``root + path``.

    /home/u/proj/            root/home/u/proj/            copied: where the script or cwd is
    ├── train.py       ──►   ├── train.py
    ├── data/big.bin         ├── data/big.bin ─► …        linked: large
    ├── images/ (60,000)     ├── images ─► …              linked: more files than are copied
    └── .git/                └── .git ─► …                linked: not the script's
    /home/u/shared/          root/home/u/shared ─► …      linked: so that ../shared is found

What is linked is still safe from the script: the workers' overlay (``runtime/_files.py``) keeps
writes aside. Only a program that the script starts could write through a link.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from reparto.spec import Program

MAX_FILE_BYTES = 16 << 20
MAX_TOTAL_BYTES = 256 << 20
MAX_FILES = 4000
MAX_FILES_OF_A_FOLDER = 1000
NUM_ANCESTORS = 3

_SKIPPED = frozenset({"__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"})
_LINKED = frozenset({".git", ".hg", ".svn", ".venv", "venv", "node_modules", ".tox", ".cache"})


@dataclass(frozen=True, kw_only=True)
class ScratchCopy:
    """A copy, as it lies on disk. The caller deletes ``root``.

    Attributes:
        root: Absolute, with its links resolved.
        cwd: The copy of the working directory.
        linked: What was not copied but linked, and why; one line each.
    """

    root: Path
    cwd: Path
    linked: tuple[str, ...] = ()

    def inside(self, path: str) -> str:
        """Where a path lies in the copy; itself if it is not there."""
        moved = f"{self.root}{os.path.abspath(path)}"
        return moved if os.path.lexists(moved) else path

    def outside(self, text: str) -> str:
        """Turn the copy's paths within a text back into the user's."""
        return text.replace(str(self.root), "")

    def moved(self, program: Program) -> Program:
        """The program as it lies in the copy: its files, and absolute paths in its arguments."""
        files = tuple(replace(file, path=self.inside(file.path)) for file in program.files)
        args = tuple(self._argument(arg) for arg in program.args)
        return replace(program, script=self.inside(program.script), files=files, args=args)

    def _argument(self, arg: str) -> str:
        option, equals, value = arg.rpartition("=") if arg.startswith("-") else ("", "", arg)
        if not os.path.isabs(value):
            return arg
        # What does not exist yet belongs where its folder is.
        parent = self.inside(os.path.dirname(value))
        known = self.inside(value)
        if known == value and parent != os.path.dirname(value):
            known = os.path.join(parent, os.path.basename(value))
        return f"{option}{equals}{known}"


def scratch_copy(root: Path, script: str, cwd: str) -> ScratchCopy:
    """Copy a script's folder and the working directory.

    Args:
        root: An empty folder for the copy.
        script: The script.
        cwd: The working directory.

    Raises:
        OSError: If the copy cannot be written.
    """
    root = root.resolve()
    # A script that is a link finds its modules where the link points to.
    script, target, cwd = os.path.abspath(script), os.path.realpath(script), os.path.abspath(cwd)
    folders = tuple(dict.fromkeys((os.path.dirname(script), os.path.dirname(target), cwd)))
    copier = _Copier(root)
    for folder in folders:
        copier.claim(folder)
    for folder in folders:
        copier.copy(folder)
    for folder in folders:
        copier.link_ancestors(folder)
    return ScratchCopy(root=root, cwd=Path(f"{root}{cwd}"), linked=copier.notes())


class _Copier:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: set[str] = set()
        self._claimed: set[str] = set()  # those and all above: they must be real, not links
        self._done: set[str] = set()
        self._num_files = 0
        self._num_bytes = 0
        self._large: list[str] = []
        self._full: list[str] = []
        self._unread: list[str] = []

    def claim(self, folder: str) -> None:
        path = Path(folder)
        self._folders.add(folder)
        self._claimed.update(str(parent) for parent in (path, *path.parents))
        self._at(folder).mkdir(parents=True, exist_ok=True)

    def copy(self, folder: str) -> None:
        # Level by level: if the limits are reached, it is the far parts that are linked.
        waiting = deque([folder])
        while waiting:
            current = waiting.popleft()
            if current not in self._done:
                self._done.add(current)
                waiting.extend(self._copy_folder(current))

    def link_ancestors(self, folder: str) -> None:
        for parent in list(Path(folder).parents)[:NUM_ANCESTORS]:
            entries = self._entries(str(parent))
            if str(parent) in self._done or len(entries) > MAX_FILES_OF_A_FOLDER:
                continue
            for entry in entries:
                if entry.path != str(self._root):
                    self._link(entry.path)

    def notes(self) -> tuple[str, ...]:
        told = (
            (self._large, "linked, not copied, because of their size"),
            (self._full, "linked, not copied, because of the number of files"),
            (self._unread, "not copied: cannot be read"),
        )
        return tuple(f"{_listed(paths)}: {why}" for paths, why in told if paths)

    def _copy_folder(self, folder: str) -> Iterable[str]:
        entries = self._entries(folder)
        num_left = min(MAX_FILES - self._num_files, MAX_FILES_OF_A_FOLDER)
        if len(entries) > num_left:
            self._full.append(folder)
            if folder not in self._claimed:
                self._link(folder)
                return
            for entry in entries:
                self._link(entry.path)
            return
        self._at(folder).mkdir(exist_ok=True)
        for entry in entries:
            if entry.name in _SKIPPED:
                continue
            if entry.is_dir():
                foreign = entry.is_symlink() or entry.name in _LINKED or _is_venv(entry.path)
                if foreign and entry.path not in self._claimed:
                    self._link(entry.path)
                elif entry.path != str(self._root):
                    yield entry.path
            else:
                self._copy_file(entry)

    def _copy_file(self, entry: os.DirEntry[str]) -> None:
        try:
            found = entry.stat()
            if not stat.S_ISREG(found.st_mode):
                return  # sockets and pipes
            if found.st_size > min(MAX_FILE_BYTES, MAX_TOTAL_BYTES - self._num_bytes):
                self._large.append(entry.path)
                self._link(entry.path)
                return
            target = os.path.realpath(entry.path)
            if entry.is_symlink() and os.path.dirname(target) in self._folders:
                self._at(entry.path).symlink_to(self._at(target))
            else:
                shutil.copy2(entry.path, self._at(entry.path))
        except OSError:  # no permission, a link to nowhere, gone meanwhile
            self._unread.append(entry.path)
            return
        self._num_files += 1
        self._num_bytes += found.st_size

    def _link(self, path: str) -> None:
        target = self._at(path)
        if path not in self._claimed and not os.path.lexists(target):
            target.symlink_to(os.path.realpath(path))

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as found:
                return sorted(found, key=lambda entry: entry.name)
        except OSError:
            self._unread.append(folder)
            return []

    def _at(self, path: str) -> Path:
        return Path(f"{self._root}{path}")


def _is_venv(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "pyvenv.cfg"))


def _listed(paths: list[str]) -> str:
    shown = ", ".join(paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"
