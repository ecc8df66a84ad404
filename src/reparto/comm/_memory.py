"""Memory that the workers of one machine share, and how they wait for each other in it.

    token    │ tells this memory from any other
    counters │ 0 │ 1 │ 2 │                  how often each member has posted; only it writes it
    pids     │ 0 │ 1 │ 2 │                  its process
    marks    │ 0 even │ 0 odd │ 1 even │ …  what it has posted, in this turn and the one before
    areas    │ 0 even │ 0 odd │ 1 even │ …  the data

A counter is written after the data that it announces, and no other processor may see it the other
way round: that is what x86-64 promises. Elsewhere there is no such memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import secrets
import select
import time
from typing import Any

import torch
from torch._C._distributed_c10d import Store

AREA_BYTES = 1 << 20
_PAGE = 4096
_TOKEN_BYTES = 64
_SPINS = 300  # peers are mostly that close

_FUTEX = {"x86_64": 202}.get(platform.machine())  # the number of the system call
_WAIT, _WAKE = 0, 1


class SharedMemory:
    """The memory of a group, mapped into this process.

    Args:
        fd: Of the memory; it may be closed afterwards.
        rank: This member.
        size: Number of members.
    """

    def __init__(self, fd: int, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._map = mmap.mmap(fd, _length(size))
        header = memoryview(self._map)[_TOKEN_BYTES : _TOKEN_BYTES + 32 * size].cast("q")
        self.counters, self.pids = header[:size], header[size : 2 * size]
        self.marks = header[2 * size :]
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map)) + _TOKEN_BYTES
        self.areas = [
            [
                torch.frombuffer(
                    self._map,
                    dtype=torch.uint8,
                    count=AREA_BYTES,
                    offset=_header(size) + (2 * member + turn) * AREA_BYTES,
                )
                for turn in range(2)
            ]
            for member in range(size)
        ]
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall

    @property
    def token(self) -> bytes:
        """What tells this memory from any other."""
        return self._map[:_TOKEN_BYTES]

    @token.setter
    def token(self, token: bytes) -> None:
        self._map[:_TOKEN_BYTES] = token

    def enter(self) -> None:
        """Tell the others who I am."""
        self.pids[self.rank] = os.getpid()

    def post(self, count: int) -> None:
        """Count my counter up, and wake who waits for it."""
        self.counters[self.rank] = count
        self._futex(self.rank, _WAKE, 0x7FFFFFFF, None)

    def wait(self, member: int, count: int, timeout_s: float) -> bool:
        """Wait until a member's counter is there; False when the time is over."""
        for _ in range(_SPINS):
            if self.counters[member] >= count:
                return True
        until = time.monotonic() + timeout_s
        while (seen := self.counters[member]) < count:
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._futex(member, _WAIT, seen, _Timespec(int(left), int(left % 1 * 1e9)))
        return True

    def _futex(self, member: int, what: int, value: int, limit: Any) -> None:
        # On the lower half of the counter; not private, since other processes see it, too. A lost
        # race or an interruption just returns, and the caller looks at the counter again.
        self._syscall(
            ctypes.c_long(_FUTEX or 0),
            ctypes.c_void_p(self._address + 8 * member),
            ctypes.c_int(what),
            ctypes.c_uint(value & 0xFFFFFFFF),
            None if limit is None else ctypes.byref(limit),
        )


class Peers:
    """Tells whether the other members still run."""

    def __init__(self, memory: SharedMemory) -> None:
        self._poll = select.poll()
        self._members: dict[int, int] = {}
        mine = memory.pids[memory.rank]
        self._pids = list(memory.pids)
        for member, pid in enumerate(self._pids):
            if pid != mine:
                with contextlib.suppress(OSError):
                    fd = os.pidfd_open(pid)
                    self._members[fd] = member
                    self._poll.register(fd, select.POLLIN)

    def is_gone(self, member: int) -> bool:
        """Whether a member's process has ended."""
        ended = [self._members[fd] for fd, _ in self._poll.poll(0)]
        return member in ended or not os.path.exists(f"/proc/{self._pids[member]}")


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


def meet(store: Store, rank: int, size: int) -> SharedMemory | None:
    """Make or open the memory; None on all members if one of them could not."""
    if _FUTEX is None:
        return None  # so it is on all members: they are of one kind
    memory: SharedMemory | None = None
    opened = -1
    if rank == 0:
        place = ""
        with contextlib.suppress(OSError):
            opened = os.memfd_create("reparto")
            os.ftruncate(opened, _length(size))
            memory = SharedMemory(opened, rank, size)
            memory.token = secrets.token_bytes(_TOKEN_BYTES)
            place = f"{os.getpid()} {opened} {memory.token.hex()}"
        store.set("at", place)
    elif place := store.get("at").decode():
        pid, number, token = place.split()
        with contextlib.suppress(OSError):
            # Leads elsewhere, or nowhere, on another machine or in a container: the token tells.
            opened = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
            if os.fstat(opened).st_size == _length(size):
                found = SharedMemory(opened, rank, size)
                memory = found if found.token.hex() == token else None
    if memory is not None:
        memory.enter()
    store.set(f"came/{rank}", "no" if memory is None else "yes")
    votes = [store.get(f"came/{member}") for member in range(size)]
    if opened >= 0:
        os.close(opened)
    return memory if all(vote == b"yes" for vote in votes) else None


def _header(size: int) -> int:
    length = _TOKEN_BYTES + 32 * size
    return -(-length // _PAGE) * _PAGE


def _length(size: int) -> int:
    return _header(size) + 2 * size * AREA_BYTES
