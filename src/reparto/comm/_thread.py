"""Groups of threads in one process: for tests, with no socket and no second interpreter."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Work

from reparto.comm._base import Group


class Done(Work):
    """A ``Work`` that is done already; tells from whom something came."""

    def __init__(self, source: int = -1) -> None:
        super().__init__()
        self.source = source

    def _source_rank(self) -> int:
        return self.source

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class Meeting:
    """What the threads of one group share.

    Args:
        size: Number of threads.
        timeout_s: How long a thread waits for the others.
        barrier: Where they wait; anything with the methods of ``threading.Barrier``.
    """

    def __init__(self, size: int, timeout_s: float = 60.0, barrier: Any = None) -> None:
        self.size = size
        self.timeout_s = timeout_s
        self.barrier = barrier or threading.Barrier(size)
        self.slots: list[Any] = [None] * size
        self.mail: dict[tuple[int, int, int], list[Tensor]] = {}
        self.mail_changed = threading.Condition()
        self.awaited: dict[tuple[int, int, int], tuple[list[_Coming], threading.Lock]] = {}
        self._beside: dict[str, Meeting] = {}

    def beside(self, name: str) -> Meeting:
        """Where the same threads meet for something else; the same for all who ask."""
        with self.mail_changed:
            if name not in self._beside:
                self._beside[name] = Meeting(self.size, self.timeout_s)
            return self._beside[name]

    def wait_for_mail(self, is_there: Callable[[], bool]) -> bool:
        """Wait until something is there, or the time is over; says which."""
        if hasattr(self.barrier, "wait_until"):  # threads that take turns
            return bool(self.barrier.wait_until(is_there))
        with self.mail_changed:
            return self.mail_changed.wait_for(is_there, self.timeout_s)

    def exchange(self, rank: int, value: Any) -> list[Any]:
        """Every thread's value, in the order of ranks."""
        self.slots[rank] = value
        self.barrier.wait(self.timeout_s)
        values = list(self.slots)
        self.barrier.wait(self.timeout_s)
        return values


class _ThreadBackend:
    """The operations of a backend of torch's, over a Meeting."""

    def __init__(self, meeting: Meeting, rank: int) -> None:
        self.meeting = meeting
        self._rank = rank

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self.meeting.size

    def allreduce(self, tensors: list[Tensor], opts: Any) -> Any:
        for tensor in tensors:
            parts = self.meeting.exchange(self._rank, tensor.detach().clone())
            tensor.detach().copy_(_reduced(parts, opts.reduceOp))
        return Done()

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        for row, tensor in zip(outputs, inputs, strict=True):
            for output, part in zip(
                row, self.meeting.exchange(self._rank, tensor.detach().clone()), strict=True
            ):
                output.copy_(part)
        return Done()

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any) -> Any:
        parts = self.meeting.exchange(self._rank, input.detach().clone())
        output.copy_(torch.cat([part.reshape(-1) for part in parts]).view_as(output))
        return Done()

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        for tensor in tensors:
            parts = self.meeting.exchange(self._rank, tensor.detach().clone())
            tensor.detach().copy_(parts[opts.rootRank])
        return Done()

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        for output, row in zip(outputs, inputs, strict=True):
            rows = self.meeting.exchange(self._rank, [part.detach().clone() for part in row])
            output.copy_(_reduced([row[self._rank] for row in rows], opts.reduceOp))
        return Done()

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any) -> Any:
        parts = self.meeting.exchange(self._rank, input.detach().clone())
        whole = _reduced(parts, opts.reduceOp).reshape(self.size(), -1)
        output.copy_(whole[self._rank].view_as(output))
        return Done()

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_sizes: Any, input_sizes: Any, opts: Any
    ) -> Any:
        sizes = list(input_sizes) or [input.shape[0] // self.size()] * self.size()
        parts = input.detach().clone().split(sizes)
        rows = self.meeting.exchange(self._rank, parts)
        output.copy_(torch.cat([row[self._rank] for row in rows]))
        return Done()

    def send(self, tensors: list[Tensor], dst: int, tag: int) -> Any:
        with self.meeting.mail_changed:
            box = self.meeting.mail.setdefault((self._rank, dst, tag), [])
            box.extend(tensor.detach().clone() for tensor in tensors)
            self.meeting.mail_changed.notify_all()
        return Done()

    def recv(self, tensors: list[Tensor], src: int, tag: int) -> Any:
        return _Coming(self.meeting, tensors, (src, self._rank, tag))

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Any:
        def sender() -> int | None:
            for (src, dst, its_tag), box in list(self.meeting.mail.items()):
                if dst == self._rank and its_tag == tag and box:
                    return src
            return None

        self.meeting.wait_for_mail(lambda: sender() is not None)
        src = sender()
        if src is None:
            raise RuntimeError("nothing came from any member")
        self.recv(tensors, src, tag).wait()
        return Done(src)

    def barrier(self, opts: Any) -> Any:
        self.meeting.exchange(self._rank, None)
        return Done()


class _Coming(Work):
    """Mail that is taken out of its box by whoever waits for it, in the order of asking."""

    def __init__(self, meeting: Meeting, tensors: list[Tensor], key: tuple[int, int, int]) -> None:
        super().__init__()
        self._meeting, self._tensors, self._key = meeting, list(tensors), key
        self._line, self._taking = meeting.awaited.setdefault(key, ([], threading.Lock()))
        self._line.append(self)

    def wait(self, timeout: Any = None) -> bool:
        with self._taking:
            while self in self._line:
                self._line[0]._take()
                self._line.pop(0)
        return True

    def _take(self) -> None:
        mail = self._meeting.mail
        for tensor in self._tensors:
            if not self._meeting.wait_for_mail(lambda: bool(mail.get(self._key))):
                raise RuntimeError(f"nothing came from member {self._key[0]}")
            with self._meeting.mail_changed:
                tensor.detach().copy_(mail[self._key].pop(0))

    def is_completed(self) -> bool:
        return self not in self._line


class ThreadGroup(Group):
    """A group whose members are threads of this process.

    Args:
        meeting: Shared by all members.
        rank: This member.
    """

    def __init__(self, meeting: Meeting, rank: int) -> None:
        super().__init__(_ThreadBackend(meeting, rank))
        self._meeting = meeting

    def beside(self, name: str) -> Group:
        """Another group of the same members."""
        return ThreadGroup(self._meeting.beside(name), self.rank())


def _reduced(parts: list[Tensor], op: Any) -> Tensor:
    if op == dist.ReduceOp.MAX:
        return torch.stack(parts).amax(0)
    if op == dist.ReduceOp.MIN:
        return torch.stack(parts).amin(0)
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total
