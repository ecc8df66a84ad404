"""A group that counts what is handed to it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from reparto.comm._base import Group
from reparto.spec import Pattern, wire_bytes


class CountingGroup(Group):
    """Counts payload bytes and operations; changes nothing.

    Args:
        inner: The group that carries the operations.

    Attributes:
        bytes_sent: Payload bytes that this member handed over.
        wire_bytes: What these put on the wire, by the algorithms that gloo uses.
        rounds: Operations that this member took part in.
    """

    def __init__(self, inner: Group) -> None:
        super().__init__(inner, epoch=inner.epoch)
        self.bytes_sent = 0
        self.wire_bytes = 0.0
        self.rounds = 0
        self._counted_by: CountingGroup | None = None

    def beside(self, name: str) -> CountingGroup:
        """Another group of the same members; what it sends counts here, too."""
        made = CountingGroup(self.inner.beside(name))
        made._counted_by = self
        return made

    def _count(self, payload: Any, pattern: Pattern) -> None:
        if self._counted_by is not None:
            self._counted_by._count(payload, pattern)
        self.rounds += 1
        size = payload_bytes(payload)
        self.bytes_sent += size
        self.wire_bytes += wire_bytes(pattern, size, self.size())

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce in place over all members."""
        self._count(tensors, "all-reduce")
        return super().allreduce(tensors, opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather ``inputs[i]`` of every member into the lists ``outputs[i]``."""
        self._count(inputs, "gather")
        return super().allgather(outputs, inputs, opts)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        self._count(input, "gather")
        return super()._allgather_base(output, input, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy the root's tensors to every member, in place."""
        self._count(tensors, "broadcast")
        return super().broadcast(tensors, opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce ``inputs`` over members; each keeps its own part."""
        self._count(inputs, "exchange")
        return super().reduce_scatter(outputs, inputs, opts)

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        self._count(input, "exchange")
        return super()._reduce_scatter_base(output, input, opts)

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_sizes: Any, input_sizes: Any, opts: Any = None
    ) -> Any:
        """Send the ``r``-th part of ``input`` to member ``r``."""
        self._count(input, "exchange")
        return super().alltoall_base(output, input, output_sizes, input_sizes, opts)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Send to one member."""
        self._count(tensors, "push")
        return super().send(tensors, dst, tag)


def payload_bytes(payload: Any) -> int:
    """Bytes of a tensor, or of all that are listed."""
    if isinstance(payload, Tensor):
        return payload.numel() * payload.element_size()
    return sum(payload_bytes(part) for part in payload)
