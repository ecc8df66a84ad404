"""SharedFile: memory without a name that other processes of this machine can map."""

from __future__ import annotations

import errno
import mmap
import os
import secrets
import tempfile

from reparto.errors import UsageError
from reparto.search._memory import free_bytes

#: A file may take this part of the memory that is free; a larger one lies on disk.
MEMORY_SHARE = 0.8
_TOKEN_BYTES = 32


class SharedFile:
    """A file without a name, of a fixed size; its first 64 bytes are its own.

    Others reach it by the process that has made it, ``/proc/PID/fd/N``, so nothing is left behind
    when that one dies. A token in its first bytes tells that it is the same file, should the
    number be given to another process. It can be pickled.
    """

    def __init__(self, pid: int, fd: int, size: int, token: bytes, where: str) -> None:
        self._pid, self._fd, self._size, self._token = pid, fd, size, token
        self.where, self._is_mine = where, True
        self._map: mmap.mmap | None = None

    @classmethod
    def of_size(cls, size: int) -> SharedFile:
        """A new one, all zeros, of so many bytes, the first 64 included.

        Raises:
            UsageError: If there is room for it neither in memory nor on disk.
        """
        where, fd = "memory", -1
        if size <= MEMORY_SHARE * free_bytes():
            fd = _in_memory(size)
        if fd < 0:
            where, fd = f"disk ({tempfile.gettempdir()})", _on_disk(size)
        file = cls(os.getpid(), fd, size, secrets.token_bytes(_TOKEN_BYTES), where)
        os.pwrite(fd, file._token, 0)
        return file

    def writable(self) -> mmap.mmap:
        """The memory, for the one that has made it."""
        return mmap.mmap(self._fd, self._size)

    def readable(self) -> mmap.mmap:
        """The memory, which cannot be written to; mapped once in each process.

        Raises:
            UsageError: If it is closed, or was made on another machine.
        """
        if self._map is None:
            self._map = self._opened()
        return self._map

    def _opened(self) -> mmap.mmap:
        gone = UsageError(
            f"the table that process {self._pid} has laid out cannot be reached from process "
            f"{os.getpid()}",
            remedy="the search that it belongs to has ended, or runs on another machine",
        )
        try:
            fd = os.open(f"/proc/{self._pid}/fd/{self._fd}", os.O_RDONLY)
        except OSError as error:
            raise gone from error
        try:
            if os.fstat(fd).st_size != self._size or os.pread(fd, _TOKEN_BYTES, 0) != self._token:
                raise gone
            return mmap.mmap(fd, self._size, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Let go of it: nobody finds it any more. What is mapped stays so. Can be called twice."""
        self._map = None
        if self._is_mine and os.getpid() == self._pid:
            self._is_mine = False
            os.close(self._fd)

    def __getstate__(self) -> tuple[int, int, int, bytes, str]:
        return self._pid, self._fd, self._size, self._token, self.where

    def __setstate__(self, state: tuple[int, int, int, bytes, str]) -> None:
        self._pid, self._fd, self._size, self._token, self.where = state
        self._is_mine, self._map = False, None

    def __del__(self) -> None:
        self.close()


def _in_memory(size: int) -> int:
    """Its descriptor; -1 if that cannot be."""
    try:
        fd = os.memfd_create("reparto-table", os.MFD_CLOEXEC)
    except OSError:  # some sandboxes forbid it
        return -1
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError:
        os.close(fd)
        return -1
    return fd


def _on_disk(size: int) -> int:
    folder = tempfile.gettempdir()
    fd, path = tempfile.mkstemp(prefix="reparto-table-", dir=folder)
    os.unlink(path)  # gone with the last one who has it open
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        os.close(fd)
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        raise UsageError(
            f"the table laid out takes {size / 1e9:.2f} GB: there are {free_bytes() / 1e9:.2f} GB "
            f"of free memory, and not enough space in {folder}",
            remedy="--rows N for fewer rows, --folds 1, or TMPDIR=FOLDER with more space",
        ) from error
    return fd
