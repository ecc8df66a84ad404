"""Where a path of the script lives while its worker writes aside: the look-up of `_files.py`."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import shutil
import site
import stat as modes
import struct
import sysconfig
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

_CACHES = (
    *("~/.cache/huggingface", "~/.cache/torch_extensions", "~/.cache/matplotlib"),
    *("~/.config/matplotlib", "~/.triton", "~/.nv"),
)
_CACHE_VARIABLES = (
    *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HOME", "TORCH_EXTENSIONS_DIR"),
    *("MPLCONFIGDIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR"),
)
_PATHS = (str, bytes, os.PathLike)
_STATX = getattr(ctypes.CDLL(None), "statx", None)  # Python has none before 3.15


def _birth_ns(path: str, found: os.stat_result) -> int:
    """When the inode was made, or 0 where the file system does not keep it."""
    if birth_s := getattr(found, "st_birthtime", 0.0):  # macOS
        return int(birth_s * 1e9)
    buffer = ctypes.create_string_buffer(256)
    # -100: relative to the working directory; 0x100: do not follow links; 0x800: birth time.
    if _STATX is None or _STATX(-100, os.fsencode(path), 0x100, 0x800, buffer):
        return 0
    (known,) = struct.unpack_from("I", buffer, 0)
    seconds, nanoseconds = struct.unpack_from("qI", buffer, 80)
    return int(seconds * 10**9 + nanoseconds) if known & 0x800 else 0


def os_error(code: int, path: Any) -> OSError:
    return OSError(code, os.strerror(code), path)


def is_dir(found: os.stat_result | None) -> bool:
    return found is not None and modes.S_ISDIR(found.st_mode)


def _outside(root: str, temp: str) -> Iterator[str]:
    yield from ("/dev/", "/proc/", "/sys/", root)
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield os.path.realpath(sysconfig.get_path(name)) + "/"
    yield os.path.realpath(site.getusersitepackages()) + "/"
    yield os.path.join(temp, "torchinductor_")
    moved = [os.environ[name] for name in _CACHE_VARIABLES if os.environ.get(name)]
    for path in (*map(os.path.expanduser, _CACHES), *moved):
        path = os.path.realpath(path)
        while not os.path.isdir(os.path.dirname(path)):  # what is missing is made outside too
            path = os.path.dirname(path)
        yield path


class Layers:
    """Where a path of the script lives: the look-up that the module's docstring draws."""

    def __init__(self, root: str, since_ns: int) -> None:
        self.root, self.since_ns = root, since_ns
        self.touched = False  # until something was written, a read costs one more lstat
        self.gone: set[str] = set()
        self.temps: set[str] = set()  # made by tempfile, which finds names of its own
        self.temp = os.path.realpath(tempfile.gettempdir())
        self._starts = tuple(_outside(root, self.temp))
        self.capture()

    def capture(self) -> None:
        names = ("open", "lstat", "readlink", "listdir", "getcwd", "symlink")
        self.real = types.SimpleNamespace(**{name: getattr(os, name) for name in names})
        self._directories = {"/": "/"}

    def look(self, path: Any, follow: bool = True) -> tuple[str, str, os.stat_result | None]:
        """A path's view (absolute, links of both layers resolved), what serves it, its state."""
        head, tail = os.path.split("/" + os.path.abspath(os.fsdecode(path)).lstrip("/"))
        if head not in self._directories:
            self._directories[head] = self.look(head)[0]
        full = os.path.join(self._directories[head], tail)
        where, found = self.find(full)
        for _ in range(40 if follow else 0):
            if found is None or not modes.S_ISLNK(found.st_mode) or self.is_outside(full):
                break
            target = os.path.join(os.path.dirname(full), self.real.readlink(where))
            full, where, found = self.look(target, follow=False)
        return full, where, found

    def find(self, full: str) -> tuple[str, os.stat_result | None]:
        """What serves a view, and its state: None if it does not exist."""
        outside, upper = self.is_outside(full), self.root + full
        if self.touched and not outside:
            found = self.lstat(upper)
            if found or self.is_gone(full):
                return upper, found
        found = self.lstat(full)
        seen = outside or (found and not self._is_new(full, found))
        return (full, found) if seen else (upper, None)

    def is_outside(self, full: str) -> bool:
        if full.startswith(self._starts) or "/__pycache__" in full:
            return True
        return bool(self.temps) and _has_parent_in(self.temps, full)

    def is_gone(self, full: str) -> bool:
        return bool(self.gone) and _has_parent_in(self.gone, full)

    def names(self, full: str) -> list[str]:
        """What a directory holds in both layers: the real names first, in their order."""
        lower = [] if self.is_gone(full) else self._listdir(full)
        names = dict.fromkeys((*lower, *self._listdir(self.root + full)))
        return [name for name in names if self.find(os.path.join(full, name))[1] is not None]

    def is_merged(self, full: str) -> bool:
        """Whether a directory may differ from the real one."""
        found = self.lstat(full)
        if found is None or found.st_mtime_ns > self.since_ns:
            return True
        is_thinned = any(os.path.dirname(each) == full for each in self.gone)
        return is_thinned or (self.touched and self.lstat(self.root + full) is not None)

    def readable(self, path: Any, follow: bool = True) -> Any:
        """Where to read a path of the script."""
        if not self.touched:
            found = self.lstat(path)
            is_old = found is not None and found.st_ctime_ns <= self.since_ns
            if found and is_old and not (follow and modes.S_ISLNK(found.st_mode)):
                return path
        return self.look(path, follow)[1]

    def writable(self, path: Any, keep: bool, follow: bool = True) -> str:
        """Where to write a path of the script; `keep` brings what it holds along."""
        full, _, found = self.look(path, follow)
        kinds = (modes.S_IFREG, modes.S_IFDIR, modes.S_IFLNK)
        if self.is_outside(full) or (found and modes.S_IFMT(found.st_mode) not in kinds):
            return full
        if keep:
            return self.copy_up(full)
        self.mirror(os.path.dirname(full))
        return self.root + full

    def creatable(self, path: Any, private: bool = False) -> str:
        """Where to make something that may not be there yet; `private` if by tempfile."""
        full, _, found = self.look(path, follow=False)
        parent = os.path.dirname(full)
        if private and (parent == self.temp or self.is_outside(parent)):
            self.temps.add(full)
        if self.is_outside(full):
            return full
        if found:
            raise os_error(errno.EEXIST, path)
        self.mirror(parent)
        self.forget()
        return self.root + full

    def mirror(self, directory: str) -> None:
        """Makes a directory of the view in the upper layer, so that something can be put there."""
        # One that the cut-off hides is taken too: worker 0 has made it for this very write.
        hidden = None if self.is_gone(directory) else self.lstat(directory)
        if is_dir(self.find(directory)[1] or hidden):
            os.makedirs(self.root + directory, exist_ok=True)
        self.touched = True

    def copy_up(self, full: str, deep: bool = False) -> str:
        """Brings what a view shows into the upper layer; of a directory the content if deep."""
        (where, found), upper = self.find(full), self.root + full
        self.mirror(full if is_dir(found) else os.path.dirname(full))
        if found is None or (where == upper and not is_dir(found)):
            return upper
        if is_dir(found):
            for name in self.names(full) if deep else ():
                self.copy_up(os.path.join(full, name), deep)
        elif modes.S_ISLNK(found.st_mode):
            self.real.symlink(self.real.readlink(where), upper)
        else:
            shutil.copyfile(where, upper)
            os.chmod(upper, modes.S_IMODE(found.st_mode))
            os.utime(upper, ns=(found.st_atime_ns, found.st_mtime_ns))
        return upper

    def forget(self, *gone: str) -> None:
        """Hides the real files behind these views; links may lead elsewhere from now on."""
        self.gone.update(gone)
        self.touched = True
        self._directories = {"/": "/"}

    def _is_new(self, full: str, found: os.stat_result) -> bool:
        if found.st_ctime_ns <= self.since_ns:
            return False
        if birth_ns := _birth_ns(full, found):
            return birth_ns > self.since_ns
        if modes.S_ISDIR(found.st_mode):  # changes with its content; something old proves its age
            inside = (self.lstat(os.path.join(full, name)) for name in self._listdir(full))
            return not any(each and each.st_ctime_ns <= self.since_ns for each in inside)
        return found.st_mtime_ns > self.since_ns

    def lstat(self, path: Any) -> os.stat_result | None:
        try:
            return self.real.lstat(path)  # type: ignore[no-any-return]
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _listdir(self, path: str) -> list[str]:
        return self.real.listdir(path) if is_dir(self.lstat(path)) else []


def _has_parent_in(paths: set[str], full: str) -> bool:
    while len(full) > 1 and full not in paths:
        full = os.path.dirname(full)
    return full in paths


class Entry:
    """An `os.DirEntry` of the view."""

    def __init__(self, path: Any, name: Any) -> None:
        self.name, self.path = name, os.path.join(path, name)

    def __fspath__(self) -> Any:
        return self.path

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path, follow_symlinks=follow_symlinks)

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def _is(self, kind: Callable[[int], bool], *, follow_symlinks: bool = True) -> bool:
        try:
            return kind(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except FileNotFoundError:
            return False

    is_dir = functools.partialmethod(_is, modes.S_ISDIR)
    is_file = functools.partialmethod(_is, modes.S_ISREG)
    is_symlink = functools.partialmethod(_is, modes.S_ISLNK, follow_symlinks=False)
    is_junction = functools.partialmethod(_is, lambda mode: False)


class Scan(contextlib.ExitStack):
    """What `os.scandir` returns: an iterator that can be closed, by hand or as a context."""

    def __init__(self, entries: list[Entry]) -> None:
        super().__init__()
        self._rest = iter(entries)

    def __iter__(self) -> Iterator[Entry]:
        return self._rest

    def __next__(self) -> Entry:
        return next(self._rest)
