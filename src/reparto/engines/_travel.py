"""What travels to other hosts: files and folders, and the part of the environment that may."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import IO, Any

CHUNK_BYTES = 8 << 20

#: Says where something is on one machine: of no use on another.
_OF_A_MACHINE = re.compile(
    r"(RAY|SSH|XDG|DBUS|CONDA|SSL|LD|LC|SLURM)_|(VIRTUAL_ENV|CUDA_VISIBLE_DEVICES)$|_$"
    r"|(OLD)?PWD$|SHLVL$|SHELL$|USER$|LOGNAME$|HOST(NAME)?$|DISPLAY$|LANG(UAGE)?$|TE?MP(DIR)?$"
    r"|(.*_)?HOME$|(?!PYTHON).*PATH$|.*_IFNAME$|.*_proxy$|.*_CERTS?\b|.*_CA_|REPARTO_SCRATCH$",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class Item:
    """A file or a folder that shall be on every host.

    Attributes:
        path: Absolute, on the machine from which it travels.
        size_bytes: -1 for a folder.
    """

    path: str
    size_bytes: int

    def is_here(self) -> bool:
        """Whether this machine has it: of the same kind and size."""
        if self.size_bytes < 0:
            return os.path.isdir(self.path)
        with contextlib.suppress(OSError):
            return os.path.isfile(self.path) and os.stat(self.path).st_size == self.size_bytes
        return False


def items(paths: Iterable[str], cwd: str) -> tuple[Item, ...]:
    """List what lies at some paths, folders with all that is in them; links are followed."""
    found: dict[str, Item] = {}
    for path in paths:
        top = os.path.abspath(os.path.join(cwd, path))
        if not os.path.isdir(top):
            found[top] = Item(path=top, size_bytes=os.stat(top).st_size)
            continue
        for folder, names, files in os.walk(top, followlinks=True):
            names[:] = [name for name in names if name != "__pycache__"]
            found[folder] = Item(path=folder, size_bytes=-1)
            for name in files:
                file = os.path.join(folder, name)
                if os.path.isfile(file):  # no sockets, no links to nowhere
                    found[file] = Item(path=file, size_bytes=os.stat(file).st_size)
    return tuple(found.values())


def pack(wanted: Iterable[Item], send: Callable[[bytes], object]) -> None:
    """Put items into an archive, and send that in chunks as it grows."""
    out = _Chunks(send)
    with tarfile.open(mode="w|", fileobj=out, dereference=True) as archive:
        for item in wanted:
            archive.add(item.path, arcname=item.path.lstrip(os.sep), recursive=False)
    out.flush()


def unpack(archive: IO[bytes], root: str) -> None:
    """Lay out the items of an archive below a folder, each at its absolute path."""
    with tarfile.open(mode="r|", fileobj=archive) as file:
        # Ours, from our own driver; an attribute, because old Pythons know no such argument.
        file.extraction_filter = getattr(tarfile, "fully_trusted_filter", lambda item, _: item)
        file.extractall(root)


def travelling(env: Mapping[str, str]) -> dict[str, str]:
    """Choose what of an environment makes sense on other machines."""
    return {name: value for name, value in env.items() if not _OF_A_MACHINE.match(name)}


class _Chunks(io.RawIOBase):
    """A file that is sent away as it is written."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._waiting += data
        while len(self._waiting) >= CHUNK_BYTES:
            self._send(bytes(self._waiting[:CHUNK_BYTES]))
            del self._waiting[:CHUNK_BYTES]
        return len(data)

    def flush(self) -> None:
        if self._waiting:
            self._send(bytes(self._waiting))
            self._waiting.clear()
