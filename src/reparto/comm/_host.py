"""Groups of workers on one machine: sums and gathers through memory that they share.

gloo carries small messages between two processes of a machine in some 300 µs; through shared
memory it is a tenth. Every member has two areas in the memory, used in turn, and a counter:

    counters │ 0 │ 1 │ 2 │      which operation each member has posted; only it writes its own
    marks    │ 0 even │ 0 odd │ 1 even …      what kind of operation that is: members must agree
    areas    │ 0 even │ 0 odd │ 1 even │ 1 odd │ 2 even │ 2 odd │

    post     copy into my area of this turn, count my counter up, wake who waits for it
    finish   wait until all counters are there, then read all areas, in the order of ranks

An operation is finished before the next one is posted, so whoever has seen all members post
operation k + 1 knows that all have read those of operation k, and may write over them. All
members add up in the same order: sums are the same to the bit everywhere.

What is not in main memory, and messages between two members, go to the group inside.
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
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, PrefixStore, Store, Work

from reparto.comm._base import MAX, MIN, SUM, Group, Op
from reparto.errors import DisagreementError

AREA_BYTES = 1 << 20
_PAGE = 4096
_TOKEN_BYTES = 64
_SPINS = 300  # about 20 µs: peers are mostly that close
_LOOK_S = 0.1  # how often a waiting member looks whether its peers are alive

# A counter is written after the data that it announces, and no other processor may see it the
# other way round: that is what x86-64 promises. Elsewhere gloo has to do.
_FUTEX = {"x86_64": 202}.get(platform.machine())
_WAIT, _WAKE = 0, 1

_REDUCERS: dict[Op, Callable[..., Tensor]] = {
    SUM: torch.add,
    MAX: torch.maximum,
    MIN: torch.minimum,
}


def host_group(inner: Group, store: Store, *, name: str, timeout_s: float = 1800.0) -> Group:
    """A group over memory that all members share, or the one inside where there is none.

    Every member calls it. They find out together: if one of them cannot reach the memory, all
    of them use ``inner``.

    Args:
        inner: Carries what does not go through memory.
        store: Where members meet.
        name: Groups of different names over one store do not mix.
        timeout_s: How long an operation may take before it fails.
    """
    if _FUTEX is None or not hasattr(os, "memfd_create"):
        return inner
    memory = _meet(PrefixStore(f"{name}/{inner.epoch}/host", store), inner.rank(), inner.size())
    return inner if memory is None else HostGroup(inner, memory, timeout_s=timeout_s)


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


class HostGroup(Group):
    """A group over shared memory. Made by ``host_group``.

    Args:
        inner: Carries what does not go through memory.
        memory: The memory; every member's counter stands at 0.
        timeout_s: How long an operation may take before it fails.
    """

    def __init__(self, inner: Group, memory: SharedMemory, *, timeout_s: float) -> None:
        super().__init__(inner, epoch=inner.epoch)
        self._memory = memory
        self._timeout_s = timeout_s
        self._count = 0
        self._last: _Operation | None = None
        self._peers = _Peers(memory)

    def getBackendName(self) -> str:
        """Name of the backend, as torch asks for it."""
        return "reparto shared memory"

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce in place over all members."""
        op = SUM if opts is None else opts.reduceOp.op
        listed = [tensors] if isinstance(tensors, Tensor) else tensors
        if op not in _REDUCERS or not all(map(_is_ours, listed)):
            return super().allreduce(tensors, opts)
        return self._begin(_Sum(self, listed, _REDUCERS[op]))

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather ``inputs[i]`` of every member into the lists ``outputs[i]``."""
        if not all(map(_is_ours, inputs)):
            return super().allgather(outputs, inputs, opts)
        return self._begin(_Gather(self, inputs, outputs))

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        if not _is_ours(input):
            return super()._allgather_base(output, input, opts or AllgatherOptions())
        parts = output.view(self.size(), *input.shape).unbind(0)
        return self._begin(_Gather(self, [input], [parts]))

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy the root's tensors to every member, in place."""
        root = 0 if opts is None else opts.rootRank
        listed = [tensors] if isinstance(tensors, Tensor) else tensors
        if not all(map(_is_ours, listed)):
            return super().broadcast(tensors, opts)
        return self._begin(_Share(self, listed, root))

    def barrier(self, opts: Any = None) -> Any:
        """Wait for every member."""
        return self._begin(_Operation(self, []))

    def _begin(self, operation: _Operation) -> _Operation:
        if self._last is not None:
            self._last.wait()
        self._last = operation
        operation.post()
        return operation

    # For operations.

    def area(self, member: int, like: Tensor, ahead: int = 0) -> Tensor:
        """A member's area of this turn, or of the next, as a tensor like the piece in it."""
        bytes_used = like.numel() * like.element_size()
        return self._memory.areas[member][self._count + ahead & 1][:bytes_used].view(like.dtype)

    def posted(self, mark: int) -> None:
        """My piece is in its area."""
        self._count += 1
        self._memory.marks[2 * self._memory.rank + (self._count & 1)] = mark
        self._memory.post(self._count)

    def met(self, mark: int) -> None:
        """Wait until every member has posted as often as I have, and the same."""
        memory = self._memory
        for member in range(memory.size):
            if memory.counters[member] < self._count:
                self._wait_for(member)
            if memory.marks[2 * member + (self._count & 1)] != mark:
                raise DisagreementError(
                    f"workers {memory.rank} and {member} exchange different things",
                    remedy="look for what differs between workers: the clock, the host's name, "
                    "unsorted listings of files, unseeded generators of other libraries",
                )

    def _wait_for(self, member: int) -> None:
        memory = self._memory
        until = time.monotonic() + self._timeout_s
        while not memory.wait(member, self._count, min(_LOOK_S, self._timeout_s)):
            is_gone = self._peers.is_gone(member)
            if memory.counters[member] >= self._count:
                return  # it posted, and then it went
            if is_gone:
                raise RuntimeError(f"worker {member} is gone")
            if time.monotonic() > until:
                limit = f"{self._timeout_s:.0f} s"
                raise RuntimeError(f"worker {member} did not come within {limit}")


class _Operation(Work):
    """An operation under way, one piece of at most ``AREA_BYTES`` after the other.

    Args:
        group: Whose operation.
        tensors: What this member hands over.
    """

    def __init__(self, group: HostGroup, tensors: Sequence[Tensor]) -> None:
        super().__init__()
        self.group: HostGroup | None = group
        self.tensors = tensors
        self.flats = [tensor.detach().contiguous().view(-1) for tensor in tensors]
        self.pieces = _pieces(self.flats)
        what = [self.kind(), *[(str(flat.dtype), flat.numel()) for flat in self.flats]]
        self.mark = zlib.crc32(repr(what).encode())  # hash() differs between processes

    def kind(self) -> str:
        """What all members must call alike."""
        return type(self).__name__

    def post(self) -> None:
        """Let the others see my first piece."""
        assert self.group is not None
        self._put(self.group, 0)

    def _put(self, group: HostGroup, number: int) -> None:
        if self.pieces and self.is_read():
            group.area(group.rank(), self.pieces[number], ahead=1).copy_(self.pieces[number])
        group.posted(self.mark)

    def is_read(self) -> bool:
        """Whether the others read what I have."""
        return True

    def wait(self, timeout: Any = None) -> bool:
        """Wait for the others, and bring the result to where it belongs."""
        group = self.group
        if group is None:
            return True
        for number in range(max(1, len(self.pieces))):
            if number:
                self._put(group, number)
            group.met(self.mark)
            if self.pieces:
                self.take(group, number, self.pieces[number])
        self.group = None
        for tensor, flat in zip(self.tensors, self.flats, strict=True):
            if tensor.data_ptr() != flat.data_ptr():
                tensor.detach().copy_(flat.view(tensor.shape))
        return True

    def take(self, group: HostGroup, number: int, piece: Tensor) -> None:
        """All members' pieces are there: make of them what is wanted."""

    def is_completed(self) -> bool:
        """Whether it was waited for."""
        return self.group is None

    def get_future(self) -> Any:
        """Its result, as torch's DDP asks for it."""
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(list(self.tensors))
        return future


class _Sum(_Operation):
    def __init__(self, group: HostGroup, tensors: Sequence[Tensor], reducer: Any) -> None:
        self.reducer = reducer
        super().__init__(group, tensors)

    def kind(self) -> str:
        return str(self.reducer.__name__)

    def take(self, group: HostGroup, number: int, piece: Tensor) -> None:
        areas = [group.area(member, piece) for member in range(group.size())]
        if len(areas) == 1:
            return
        self.reducer(areas[0], areas[1], out=piece)
        for area in areas[2:]:
            self.reducer(piece, area, out=piece)


class _Gather(_Operation):
    def __init__(self, group: HostGroup, inputs: Sequence[Tensor], outputs: Any) -> None:
        super().__init__(group, inputs)
        self.outputs = [list(parts) for parts in zip(*outputs, strict=True)]  # by member
        self.found = [
            [
                part.detach().view(-1) if part.is_contiguous() else torch.empty_like(flat)
                for part, flat in zip(parts, self.flats, strict=True)
            ]
            for parts in self.outputs
        ]
        self.places = [_pieces(flats) for flats in self.found]

    def take(self, group: HostGroup, number: int, piece: Tensor) -> None:
        for member, places in enumerate(self.places):
            places[number].copy_(group.area(member, piece))

    def wait(self, timeout: Any = None) -> bool:
        """Wait for the others, and bring the result to where it belongs."""
        super().wait(timeout)
        for parts, flats in zip(self.outputs, self.found, strict=True):
            for part, flat in zip(parts, flats, strict=True):
                if part.data_ptr() != flat.data_ptr():
                    part.detach().copy_(flat.view(part.shape))
        return True


class _Share(_Operation):
    def __init__(self, group: HostGroup, tensors: Sequence[Tensor], root: int) -> None:
        self.is_root: bool = group.rank() == root
        self.root = root
        super().__init__(group, tensors)

    def kind(self) -> str:
        return f"from {self.root}"

    def is_read(self) -> bool:
        return self.is_root

    def take(self, group: HostGroup, number: int, piece: Tensor) -> None:
        if not self.is_root:
            piece.copy_(group.area(self.root, piece))


class _Peers:
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


def _meet(store: Store, rank: int, size: int) -> SharedMemory | None:
    """Make or open the memory; None on all members if one of them could not."""
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


def _is_ours(tensor: Tensor) -> bool:
    """Whether a tensor goes through memory: told by what is the same on all members."""
    return tensor.device.type == "cpu" and tensor.layout is torch.strided


def _pieces(flats: Sequence[Tensor]) -> list[Tensor]:
    """Flat tensors in parts that fit into an area; they are views."""
    return [part for flat in flats for part in flat.split(AREA_BYTES // flat.element_size())]
