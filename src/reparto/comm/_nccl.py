"""Groups over NCCL: several NVIDIA GPUs."""

from __future__ import annotations

from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from reparto.comm._base import Group


class NcclGroup(Group):
    """A group over NCCL; one member a GPU.

    Args:
        store: Where members meet.
        rank: This member.
        size: Number of members.
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
        name: str = "data",
        timeout_s: float = 1800.0,
        epoch: int = 0,
    ) -> None:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=timeout_s)
        prefix = PrefixStore(f"{name}/{epoch}", store)
        super().__init__(dist.ProcessGroupNCCL(prefix, rank, size, options), epoch=epoch)
