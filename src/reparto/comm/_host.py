"""Groups of workers on one machine: sums and gathers through memory that they share.

gloo carries every message between two processes of a machine over loopback TCP. Here a member
copies what it has into an area of its own, and reads those of the others (`_memory.py`):

    post     copy into my area of this turn, count my counter up, wake who waits for it
    finish   wait until all counters are there, then read all areas, in the order of ranks

Areas are used in turn, even and odd. An operation is finished before the next one is posted, so
whoever has seen all members post operation k + 1 knows that all have read those of operation k,
and may write over them. All members add up in the same order: sums are the same to the bit
everywhere. Members that post different things are told so.

What is not in main memory, and messages between two members, go to the group inside.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, PrefixStore, Store, Work

from reparto.comm._base import MAX, MIN, SUM, Group, Op
from reparto.comm._memory import AREA_BYTES, Peers, SharedMemory, meet
from reparto.errors import DisagreementError

_LOOK_S = 0.1  # how often a waiting member looks whether its peers are alive

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
    memory = meet(PrefixStore(f"{name}/{inner.epoch}/host", store), inner.rank(), inner.size())
    return inner if memory is None else HostGroup(inner, memory, timeout_s=timeout_s)


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
        self._peers = Peers(memory)

    def beside(self, name: str) -> Group:
        """Another group of the same members, over what carries this one."""
        made: Group = self.inner.beside(name)
        return made

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

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_sizes: Any, input_sizes: Any, opts: Any = None
    ) -> Any:
        """Send the ``r``-th part of ``input`` to member ``r``."""
        if output_sizes or input_sizes or not _is_ours(input):
            return super().alltoall_base(output, input, output_sizes, input_sizes, opts)
        return self._begin(_Exchange(self, input, output))

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        op = SUM if opts is None else opts.reduceOp.op
        if op not in _REDUCERS or not _is_ours(input):
            return super()._reduce_scatter_base(output, input, opts)
        return self._begin(_Scatter(self, input, output, _REDUCERS[op]))

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
        return self._memory.areas[member][(self._count + ahead) & 1][:bytes_used].view(like.dtype)

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
                    f"workers {memory.rank} and {member} exchange different things"
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
        self.bring()
        return True

    def bring(self) -> None:
        """Bring the result to where it belongs, once."""
        _copy_back(self.tensors, self.flats)

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

    def bring(self) -> None:
        for parts, flats in zip(self.outputs, self.found, strict=True):
            _copy_back(parts, flats)


class _Parts(_Operation):
    """Pieces hold the same stretch of every member's part: ``[to 0 | to 1 | …]``."""

    def __init__(self, group: HostGroup, input: Tensor) -> None:
        size = group.size()
        self.rows = input.detach().contiguous().view(size, -1)
        self.width = max(1, AREA_BYTES // (input.element_size() * size))
        stretches = [stretch.contiguous().view(-1) for stretch in self.rows.split(self.width, 1)]
        super().__init__(group, stretches if self.rows.numel() else [])

    def parts(self, group: HostGroup, piece: Tensor) -> list[Tensor]:
        """What each member has sent me."""
        areas = (group.area(member, piece) for member in range(group.size()))
        return [area.view(group.size(), -1)[group.rank()] for area in areas]


class _Exchange(_Parts):
    def __init__(self, group: HostGroup, input: Tensor, output: Tensor) -> None:
        super().__init__(group, input)
        self.output = output
        is_flat = output.is_contiguous()
        whole = output.detach().view(group.size(), -1) if is_flat else torch.empty_like(self.rows)
        self.found = whole
        self.places = self.found.split(self.width, 1)

    def take(self, group: HostGroup, number: int, piece: Tensor) -> None:
        for place, part in zip(self.places[number], self.parts(group, piece), strict=True):
            place.copy_(part)

    def bring(self) -> None:
        if not self.output.is_contiguous():
            self.output.detach().copy_(self.found.view(self.output.shape))


class _Scatter(_Parts):
    """The parts that came, added up in the order of ranks."""

    def __init__(self, group: HostGroup, input: Tensor, output: Tensor, reducer: Any) -> None:
        self.reducer = reducer
        super().__init__(group, input)
        self.output = output
        self.found = output.detach().reshape(-1)
        self.places = self.found.split(self.width)

    def kind(self) -> str:
        return f"scattered {self.reducer.__name__}"

    def take(self, group: HostGroup, number: int, piece: Tensor) -> None:
        parts, place = self.parts(group, piece), self.places[number]
        place.copy_(parts[0])
        for part in parts[1:]:
            self.reducer(place, part, out=place)

    def bring(self) -> None:
        _copy_back([self.output], [self.found])


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


def _is_ours(tensor: Tensor) -> bool:
    """Whether a tensor goes through memory: told by what is the same on all members."""
    return tensor.device.type == "cpu" and tensor.layout is torch.strided


def _pieces(flats: Sequence[Tensor]) -> list[Tensor]:
    """Flat tensors in parts that fit into an area; they are views."""
    return [part for flat in flats for part in flat.split(AREA_BYTES // flat.element_size())]


def _copy_back(tensors: Sequence[Tensor], flats: Sequence[Tensor]) -> None:
    """Copy what lies end to end into tensors with strides of their own."""
    for tensor, flat in zip(tensors, flats, strict=True):
        if tensor.data_ptr() != flat.data_ptr():
            tensor.detach().copy_(flat.view(tensor.shape))
