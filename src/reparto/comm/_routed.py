"""A group that carries tensors of the CPU and of GPUs, each by the backend made for it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from reparto.comm._base import Group


class RoutedGroup(Group):
    """Sends each operation to one of two groups by the device of its tensors.

    Args:
        cpu: Carries tensors in main memory, barriers, and everything else without a GPU tensor.
        cuda: Carries tensors on GPUs.
    """

    def __init__(self, cpu: Group, cuda: Group) -> None:
        super().__init__(cpu, epoch=cpu.epoch)
        self.cuda = cuda

    def _for(self, payload: Any) -> Group:
        carrier: Group = self.cuda if _first(payload).is_cuda else self.inner
        return carrier

    def beside(self, name: str) -> Group:
        """Another group of the same members, for tensors in main memory."""
        made: Group = self.inner.beside(name)
        return made

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce in place over all members."""
        return self._for(tensors).allreduce(tensors, opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather ``inputs[i]`` of every member into the lists ``outputs[i]``."""
        return self._for(inputs).allgather(outputs, inputs, opts)

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        return self._for(input)._allgather_base(output, input, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy the root's tensors to every member, in place."""
        return self._for(tensors).broadcast(tensors, opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce ``inputs`` over members; each keeps its own part."""
        return self._for(inputs).reduce_scatter(outputs, inputs, opts)

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        return self._for(input)._reduce_scatter_base(output, input, opts)

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_sizes: Any, input_sizes: Any, opts: Any = None
    ) -> Any:
        """Send the ``r``-th part of ``input`` to member ``r``."""
        return self._for(input).alltoall_base(output, input, output_sizes, input_sizes, opts)

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Send to one member."""
        return self._for(tensors).send(tensors, dst, tag)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Receive from one member."""
        return self._for(tensors).recv(tensors, src, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive from whichever member sends first; the ``Work`` tells which."""
        return self._for(tensors).recv_anysource(tensors, tag)


def _first(payload: Any) -> Tensor:
    while not isinstance(payload, Tensor):
        payload = payload[0]
    return payload
