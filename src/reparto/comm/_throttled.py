"""A group on a slow line: rate, delay, jitter and loss, without root and on any system.

The group inside carries everything at once; here its results are held back until they would have
come over the line (`_wire.py`). Nobody is held up before a result is waited for, so what our
strategies let overlap overlaps here:

    issue ─ carried by the group inside ─►│
      ├──────── booked on the line ───────────────►│
      ├ the worker computes ──┤ wait ├ sleep ──────┤

What a member of a group puts on its line, by the algorithms that gloo uses:

    all-reduce       ring            2(N−1)/N of the payload each way     2(N−1) hops
    gather           ring            N−1 times, each way                  N−1
    exchange         parts           (N−1)/N, each way                    1
    broadcast        binomial tree   down once, up once for each child    its depth in the tree
    barrier          dissemination   nothing                              ⌈log₂ N⌉
    send, receive    message         up at one end, down at the other     1, seen by the receiver

Of a message the receiver is told when it left (a small message beside it, on a tag of its own),
so the lines of both ends count. From anyone, the message comes first that is here first on the
line (`_arrivals.py`). The limits of the model:

- In an operation of all members each knows its own line only, and books it when it joins. One on
  a fast line is done early, and then waits for the others in the operation after it. Runs take
  as long as they should, single operations seem short on the fast side.
- Each worker has a line of its own. Workers of one host do not share the host's, and talk to
  each other over theirs.
- Operations queue one behind the other, where streams of TCP would share the rate.
- It waits on the CPU: of a GPU's operation the booked time counts, not when the GPU is done.
- A future waits when it is asked for. torch's DDP asks in its backward pass, where then nothing
  overlaps.
- Who comes first of several is judged by when they leave and travel, before they share the
  receiver's line; one that is handed over before the next is sent stays before it. Messages of
  one tag that anyone may send have one size.
- When a message left is told by the sender's clock. Clocks of machines have to agree to well below
  the delays that are played; where the sender's is fast, a message counts as sent when announced.
"""

from __future__ import annotations

import time
from datetime import timedelta
from math import inf
from threading import Lock
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Work

from reparto.comm._arrivals import Arrivals, departure_in, no_departure
from reparto.comm._base import Group
from reparto.comm._counting import payload_bytes
from reparto.comm._wire import Wire
from reparto.spec import Pattern, wire_bytes

#: Added to the tag of a message: the departure that belongs to it.
_DEPARTURES = 1 << 24


class ThrottledGroup(Group):
    """Holds results back until they would have come over a line; changes no number.

    Args:
        inner: The group that carries the operations.
        wire: The line of this worker, shared by all of its groups.
    """

    def __init__(self, inner: Group, wire: Wire) -> None:
        super().__init__(inner, epoch=inner.epoch)
        self.wire = wire
        self._arrivals: dict[int, Arrivals] = {}
        self._lock = Lock()

    def beside(self, name: str) -> ThrottledGroup:
        """Another group of the same members, on the same line."""
        return ThrottledGroup(self.inner.beside(name), self.wire)

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce in place over all members."""
        done_at = self._book("all-reduce", tensors, tensors, 2 * (self.size() - 1))
        return _Held(super().allreduce(tensors, opts), done_at, tensors)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather ``inputs[i]`` of every member into the lists ``outputs[i]``."""
        done_at = self._book("gather", inputs, inputs, self.size() - 1)
        return _Held(super().allgather(outputs, inputs, opts), done_at, outputs)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        done_at = self._book("gather", input, input, self.size() - 1)
        return _Held(super()._allgather_base(output, input, opts), done_at, output)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce ``inputs`` over members; each keeps its own part."""
        done_at = self._book("exchange", inputs, inputs, 1)
        return _Held(super().reduce_scatter(outputs, inputs, opts), done_at, outputs)

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        done_at = self._book("exchange", input, input, 1)
        return _Held(super()._reduce_scatter_base(output, input, opts), done_at, output)

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_sizes: Any, input_sizes: Any, opts: Any = None
    ) -> Any:
        """Send the ``r``-th part of ``input`` to member ``r``."""
        done_at = self._book("exchange", input, output, 1)
        work = super().alltoall_base(output, input, output_sizes, input_sizes, opts)
        return _Held(work, done_at, output)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy the root's tensors to every member, in place."""
        root = 0 if opts is None else opts.rootRank
        num_children, depth = _in_tree((self.rank() - root) % self.size(), self.size())
        size = payload_bytes(tensors)
        done_at = self.wire.book(num_children * size, size if depth else 0, depth)
        return _Held(super().broadcast(tensors, opts), done_at, tensors)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for every member."""
        done_at = self.wire.book(0, 0, (self.size() - 1).bit_length())
        return _Held(super().barrier(opts), done_at, [])

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Send to one member."""
        left_at, departure = self.wire.depart(payload_bytes(tensors))
        note = torch.tensor(departure, dtype=torch.float64)
        announced = super().send(note, dst, tag + _DEPARTURES)
        return _Sent(super().send(tensors, dst, tag), left_at, tensors, announced)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Receive from one member."""
        note = no_departure()
        announced = super().recv(note, src, tag + _DEPARTURES)
        # Received at once: who sends may wait for that.
        return _Received(super().recv(tensors, src, tag), self.wire, tensors, note, announced)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive from whichever member sends first; the ``Work`` tells which."""
        return _ReceivedFromAnyone(self, tensors, tag)

    def arrivals(self, tag: int) -> Arrivals:
        """The messages of a tag that anyone sends."""
        announced, receive = super().recv_anysource, super().recv
        with self._lock:
            if tag not in self._arrivals:
                self._arrivals[tag] = Arrivals(
                    lambda note: announced(note, tag + _DEPARTURES),
                    lambda tensors, source: receive(tensors, source, tag),
                    self.wire,
                )
            return self._arrivals[tag]

    def _book(self, pattern: Pattern, sent: Any, received: Any, hops: int) -> float:
        size = self.size()
        up, down = (wire_bytes(pattern, payload_bytes(part), size) for part in (sent, received))
        return self.wire.book(up, down, hops if size > 1 else 0)


class _Held(Work):
    """An operation whose result is held back.

    Args:
        inner: The operation, as the group inside carries it.
        done_at: When it is done, in seconds of `time.monotonic`.
        result: The tensors in which its result is.
    """

    def __init__(self, inner: Any, done_at: float, result: Any) -> None:
        super().__init__()
        self.inner = inner
        self.done_at = done_at
        self.result_in = [result] if isinstance(result, Tensor) else list(result)
        self.is_joined = False

    def wait(self, timeout: Any = None) -> bool:
        """Wait for the group inside, and then for the line."""
        until = time.monotonic() + timeout.total_seconds() if timeout else None
        if not self.is_joined:  # gloo's messages cannot be waited for twice
            self.join(timeout or None)
            self.is_joined = True
        _sleep_until(self.done_at, until)
        return True

    def join(self, timeout: timedelta | None) -> None:
        """Wait for the group inside; once."""
        _wait(self.inner, timeout)

    def is_completed(self) -> bool:
        """Whether the group inside is done and the line has brought it."""
        is_carried = self.is_joined or self.inner.is_completed()
        return is_carried and time.monotonic() >= self.done_at

    def get_future(self) -> Any:
        """Its result, as torch's DDP asks for it; waits."""
        self.wait()
        future: Any = torch.futures.Future()
        future.set_result(self.result_in)
        return future


class _Sent(_Held):
    """A message, with what announces it."""

    def __init__(self, inner: Any, left_at: float, tensors: Any, announced: Any) -> None:
        super().__init__(inner, left_at, tensors)
        self.announced = announced

    def join(self, timeout: timedelta | None) -> None:
        _wait(self.announced, timeout)
        _wait(self.inner, timeout)


class _Received(_Held):
    """A message that comes; as in gloo, it is done when it has been waited for, not before.

    Args:
        inner: Receives the message itself.
        wire: The line that it comes over.
        tensors: Where it is put.
        note: Where its departure is put.
        announced: Receives that.
    """

    def __init__(self, inner: Any, wire: Wire, tensors: Any, note: Tensor, announced: Any) -> None:
        super().__init__(inner, inf, tensors)
        self.wire = wire
        self.note = note
        self.announced = announced

    def join(self, timeout: timedelta | None) -> None:
        _wait(self.announced, timeout)
        departure = departure_in(self.note)
        _wait(self.inner, timeout)
        self.done_at = self.wire.arrive(payload_bytes(self.result_in), departure)

    def is_completed(self) -> bool:
        return self.is_joined and time.monotonic() >= self.done_at


class _ReceivedFromAnyone(_Held):
    """A message from whoever is first; who that is turns out while it is waited for."""

    def __init__(self, group: ThrottledGroup, tensors: Any, tag: int) -> None:
        super().__init__(None, inf, tensors)
        self.group, self.tag = group, tag
        self.source = -1

    def join(self, timeout: timedelta | None) -> None:
        timeout_s = inf if timeout is None else timeout.total_seconds()
        self.source, departure, tensors = self.group.arrivals(self.tag).take(
            self.result_in, timeout_s
        )
        for mine, received in zip(self.result_in, tensors, strict=True):
            mine.detach().copy_(received)
        self.done_at = self.group.wire.arrive(payload_bytes(self.result_in), departure)

    def is_completed(self) -> bool:
        return self.is_joined and time.monotonic() >= self.done_at

    def _source_rank(self) -> int:
        return self.source


def _in_tree(place: int, size: int) -> tuple[int, int]:
    """Children and depth of a member of gloo's tree, where the root has place 0.

    In turn t those that have it, places below 2^t, give it to the places 2^t further on.
    """
    turns = range(place.bit_length(), (size - 1).bit_length())
    return sum(place + (1 << turn) < size for turn in turns), place.bit_count()


def _wait(work: Any, timeout: timedelta | None) -> None:
    _ = work.wait() if timeout is None else work.wait(timeout)


def _sleep_until(done_at: float, until: float | None) -> None:
    now = time.monotonic()
    if until is not None and until < done_at:
        time.sleep(max(0.0, until - now))
        raise RuntimeError(f"the line needs {done_at - until:.3f} s more than the time-out")
    if now < done_at:
        time.sleep(done_at - now)
