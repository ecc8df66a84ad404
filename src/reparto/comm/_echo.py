"""A group of one that plays many: everyone else does just what this worker does.

Nothing travels and nobody is waited for. What a worker of so many costs, besides talking, can thus
be measured in one process.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import Tensor

from reparto.comm._base import Group
from reparto.comm._thread import Done


class _EchoBackend:
    """The operations of a backend of torch's, answered by copies."""

    def __init__(self, size: int) -> None:
        self._size = size

    def rank(self) -> int:
        return 0

    def size(self) -> int:
        return self._size

    def allreduce(self, tensors: list[Tensor], opts: Any) -> Any:
        if opts.reduceOp == dist.ReduceOp.SUM:
            for tensor in tensors:
                tensor.detach().mul_(self._size)
        return Done()

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Any:
        for row, tensor in zip(outputs, inputs, strict=True):
            for output in row:
                output.copy_(tensor)
        return Done()

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any) -> Any:
        output.view(self._size, -1).copy_(input.reshape(1, -1))
        return Done()

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Any:
        return Done()

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Any:
        for output, row in zip(outputs, inputs, strict=True):
            output.copy_(row[0] * self._size)
        return Done()

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any) -> Any:
        output.copy_((input.reshape(self._size, -1)[0] * self._size).view_as(output))
        return Done()

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_sizes: Any, input_sizes: Any, opts: Any
    ) -> Any:
        output.copy_(input)  # alike in size, which is all that counts
        return Done()

    def send(self, tensors: list[Tensor], dst: int, tag: int) -> Any:
        return Done()

    def recv(self, tensors: list[Tensor], src: int, tag: int) -> Any:
        return Done(src)

    def barrier(self, opts: Any) -> Any:
        return Done()


class EchoGroup(Group):
    """A group whose other members do just what this one does.

    Sums are the own term times the number of members, gathers are copies; what is received from
    one member is whatever lay there. Nobody can be received from by chance.

    Args:
        size: How many members it plays.
    """

    def __init__(self, size: int) -> None:
        super().__init__(_EchoBackend(size))

    def beside(self, name: str) -> Group:
        """Another one."""
        return EchoGroup(self.size())
