"""Groups over TCP with gloo: CPUs, any network."""

from __future__ import annotations

import socket
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, Work

from reparto.comm._base import SUM, Group

#: Tag of the messages of an exchange, which no strategy uses.
_EXCHANGE = 1 << 20


def own_address(peer: str, port: int) -> str:
    """The address of this machine on the way to ``peer``, as ``peer`` would see it.

    Asking the routing table beats asking for the host's name, which on many machines resolves
    to 127.0.1.1 and leaves peers connecting to themselves.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, port))
        return str(probe.getsockname()[0])


class _All(Work):
    """Work that is done when all of it is."""

    def __init__(self, works: list[Any]) -> None:
        super().__init__()
        self._works = works
        self._failure: BaseException | None = None

    def wait(self, timeout: Any = None) -> bool:
        """Until it is done; a part of it may be waited for once only."""
        limit = () if timeout is None else (timeout,)
        if self._failure is not None:
            raise self._failure
        try:
            while self._works:
                self._works.pop(0).wait(*limit)
        except RuntimeError as error:
            self._failure = error
            raise
        return True

    def is_completed(self) -> bool:
        """Whether it is done."""
        return self._failure is None and all(work.is_completed() for work in self._works)


class GlooGroup(Group):
    """A group over gloo.

    ``ProcessGroupGloo`` is built directly, with no default group beside it: after a hung peer
    ``destroy_process_group`` blocks for long, while a fresh group takes milliseconds.

    Args:
        store: Where members meet.
        rank: This member.
        size: Number of members.
        address: This machine's address, as peers see it.
        name: Groups of different names over one store do not mix.
        timeout_s: How long an operation may take before it fails.
        epoch: Counts changes of membership.
    """

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        size: int,
        address: str = "127.0.0.1",
        name: str = "data",
        timeout_s: float = 1800.0,
        epoch: int = 0,
    ) -> None:
        options = dist.ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=address)]
        options._timeout = timedelta(seconds=timeout_s)
        prefix = PrefixStore(f"{name}/{epoch}", store)
        super().__init__(dist.ProcessGroupGloo(prefix, rank, size, options), epoch=epoch)
        self._again = partial(
            GlooGroup, store, rank=rank, size=size, address=address, timeout_s=timeout_s,
            epoch=epoch,
        )  # fmt: skip
        self._name = name

    def _reduce_scatter_base(self, output: Tensor, input: Tensor, opts: Any = None) -> Any:
        """Parts to their owners, who add them up: half the bytes of gloo's own, which sums all."""
        is_sum = opts is None or opts.reduceOp == SUM
        if not is_sum or input.is_cuda:
            return super()._reduce_scatter_base(output, input, opts)
        received = torch.empty_like(input)
        work = self.alltoall_base(received, input, [], [])
        work.wait()
        torch.sum(received.view(self.size(), -1), 0, out=output.view(-1))
        return work

    def alltoall_base(
        self, output: Tensor, input: Tensor, output_sizes: Any, input_sizes: Any, opts: Any = None
    ) -> Any:
        """Parts to their owners.

        Receives are posted first: gloo's own posts sends first, and then a line carries one
        direction after the other, which takes twice as long.
        """
        if input.is_cuda:
            return super().alltoall_base(output, input, output_sizes, input_sizes, opts)
        me, count = self.rank(), self.size()
        arriving = _parts(output, output_sizes, count)
        leaving = _parts(input, input_sizes, count)
        arriving[me].copy_(leaving[me])
        others = [(me + step) % count for step in range(1, count)]
        works = [
            self.recv([arriving[peer]], peer, _EXCHANGE)
            for peer in reversed(others)
            if arriving[peer].numel()
        ]
        works += [
            self.send([leaving[peer]], peer, _EXCHANGE) for peer in others if leaving[peer].numel()
        ]
        return _All(works)

    def beside(self, name: str) -> Group:
        """Another group of the same members."""
        return self._again(name=f"{self._name}/{name}")


def _parts(flat: Tensor, sizes: Any, count: int) -> list[Tensor]:
    return list(flat.split(list(sizes) if sizes else [len(flat) // count] * count))
