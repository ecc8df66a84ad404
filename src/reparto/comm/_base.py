"""Group: the only way that workers talk.

A Group is a Python subclass of torch's ``ProcessGroup``, so torch's own DDP and ``fully_shard``
and our strategies run over the same wrappers. The operations are torch's (``allreduce``,
``allgather``, ``broadcast``, ``send``, ...), each returns a ``Work``. On top of them stand a few
short forms for callers that want one tensor and no options.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions

from reparto.comm._stopwatch import Stopwatch

Op = dist.ReduceOp.RedOpType
SUM: Op = dist.ReduceOp.SUM
MAX: Op = dist.ReduceOp.MAX
MIN: Op = dist.ReduceOp.MIN


# torch's stubs know overloads that torch's own callers do not use and that we do not have.
_ProcessGroup: Any = dist.ProcessGroup


class Group(_ProcessGroup):  # type: ignore[misc]
    """Workers that talk to each other; membership is fixed.

    Call order: every member calls the same collective operations in the same order. Threads:
    operations of one group are issued from one thread at a time; a ``Work`` may be waited for
    anywhere. Ownership: a tensor handed to an operation is not touched until its ``Work`` is
    done. A change of membership makes a new Group with the next ``epoch``.

    Args:
        inner: What carries the operations: a backend of torch's, or another Group.
        epoch: Counts changes of membership.

    Raises:
        RuntimeError: From ``wait`` when a peer is gone or the time-out has passed.
    """

    def __init__(self, inner: Any, *, epoch: int = 0) -> None:
        super().__init__(inner.rank(), inner.size())
        self.inner = inner
        self.epoch = epoch
        self.step = 0
        self.waiting = Stopwatch()

    # What torch calls on a process group. Wrappers override these and nothing else. The stubs
    # know more overloads than torch's own callers use.

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:
        """Reduce in place over all members."""
        return self.inner.allreduce(_listed(tensors), opts or dist.AllreduceOptions())

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Gather ``inputs[i]`` of every member into the lists ``outputs[i]``."""
        return self.inner.allgather(outputs, inputs, opts or AllgatherOptions())

    def _allgather_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        return self.inner._allgather_base(output, input, opts or AllgatherOptions())

    def broadcast(self, tensors: Any, opts: Any = None) -> Any:
        """Copy the root's tensors to every member, in place."""
        return self.inner.broadcast(_listed(tensors), opts or dist.BroadcastOptions())

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None) -> Any:
        """Reduce ``inputs`` over members; each keeps its own part."""
        return self.inner.reduce_scatter(outputs, inputs, opts or dist.ReduceScatterOptions())

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        return self.inner._reduce_scatter_base(output, input, opts or dist.ReduceScatterOptions())

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_sizes: Any, input_sizes: Any, opts: Any = None
    ) -> Any:
        """Send the ``r``-th part of ``input`` to member ``r``; without sizes, equal parts."""
        return self.inner.alltoall_base(
            output, input, output_sizes, input_sizes, opts or dist.AllToAllOptions()
        )

    def send(self, tensors: Any, dst: int, tag: int = 0) -> Any:
        """Send to one member."""
        return self.inner.send(_listed(tensors), dst, tag)

    def recv(self, tensors: Any, src: int, tag: int = 0) -> Any:
        """Receive from one member."""
        return self.inner.recv(_listed(tensors), src, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        """Receive from whichever member sends first; the ``Work`` tells which."""
        return self.inner.recv_anysource(_listed(tensors), tag)

    def barrier(self, opts: Any = None) -> Any:
        """Wait for every member."""
        return self.inner.barrier(opts or dist.BarrierOptions())

    def getBackendName(self) -> str:
        """Name of the backend, as torch asks for it."""
        if isinstance(self.inner, Group):
            return self.inner.getBackendName()
        # Not torch's own name: under "gloo" or "nccl" DDP looks for more than operations.
        return f"reparto {type(self.inner).__name__}"

    # Short forms, which wait; ``waiting`` adds up how long.

    def at_step(self, step: int) -> None:
        """Tell the group at which step the run is; counters and faults go by it."""
        self.step = step
        if isinstance(self.inner, Group):
            self.inner.at_step(step)

    def beside(self, name: str) -> Group:
        """Another group of the same members, for another thread; collective."""
        return type(self)(self.inner.beside(name))

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over members, in place, and wait."""
        return self.reduced(tensor, SUM)

    def reduced(self, tensor: Tensor, op: Op) -> Tensor:
        """Reduce over members, in place, and wait."""
        with self.waiting:
            self.reduce_all(tensor, op).wait()
        return tensor

    def reduce_all(self, tensor: Tensor, op: Op = SUM) -> Any:
        """Reduce over members, in place."""
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp(op)
        return self.allreduce([tensor], options)

    def gather_all(self, tensor: Tensor) -> list[Tensor]:
        """Every member's tensor, in the order of ranks; all have one shape."""
        outputs = [torch.empty_like(tensor) for _ in range(self.size())]
        with self.waiting:
            self.allgather([outputs], [tensor]).wait()
        return outputs

    def gather_rows(self, tensor: Tensor, rows: Sequence[int]) -> list[Tensor]:
        """Every member's tensor, where member ``r`` has ``rows[r]`` rows in dimension 0.

        Rows are padded to the longest, since not every backend gathers unequal shapes.
        """
        longest = max(rows)
        padded = tensor.new_zeros((longest, *tensor.shape[1:]))
        padded[: rows[self.rank()]].copy_(tensor)
        return [part[:count] for part, count in zip(self.gather_all(padded), rows, strict=True)]

    def exchange(self, tensor: Tensor) -> Tensor:
        """Row ``r`` goes to member ``r``; the rows that came, in the order of ranks."""
        received = torch.empty_like(tensor)
        with self.waiting:
            self.alltoall_base(received.view(-1), tensor.contiguous().view(-1), [], []).wait()
        return received

    def share(self, tensor: Tensor, root: int = 0) -> Tensor:
        """Copy the root's tensor to every member, in place, and wait."""
        options = dist.BroadcastOptions()
        options.rootRank = root
        with self.waiting:
            self.broadcast([tensor], options).wait()
        return tensor


def _listed(tensors: Any) -> Any:
    return [tensors] if isinstance(tensors, Tensor) else tensors
