"""Where the workers of a run find each other, and what carries their words."""

from __future__ import annotations

import os
from datetime import timedelta

import torch
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from reparto.comm import (
    GlooGroup,
    Group,
    NcclGroup,
    RoutedGroup,
    ThrottledGroup,
    Wire,
    host_group,
    own_address,
)
from reparto.spec import Line, from_json


class Meeting:
    """Where the workers of a run find each other, and how they then talk.

    Args:
        rank: This worker.
        size: Number of workers.
        device: What they compute on.
        master: Where worker 0 listens.
        listen_fd: The socket on which it does, if it was opened before.
    """

    def __init__(
        self, rank: int, size: int, device: str, master: tuple[str, int], listen_fd: int | None
    ) -> None:
        self.rank, self.size, self.device = rank, size, device
        self.address = own_address(*master) if size > 1 else master[0]
        self._wire = wire_of(rank)
        self.is_one_host = os.environ.get("LOCAL_WORLD_SIZE") == str(size)
        if size > 1:
            self.store: Store = TCPStore(
                master[0],
                master[1],
                size,
                rank == 0,
                timeout=timedelta(seconds=120),
                wait_for_workers=False,
                master_listen_fd=listen_fd if rank == 0 else None,
            )

    @property
    def host_name(self) -> str:
        """Of this worker's host. Those that one machine plays have one address, but a name."""
        return os.environ.get("REPARTO_HOST") or self.address

    def hosts(self) -> list[str]:
        """The host of every worker, however it is called there; collective."""
        self.store.set(f"address/{self.rank}", self.host_name)
        return [self.store.get(f"address/{member}").decode() for member in range(self.size)]

    def group(
        self,
        name: str,
        place: int | None = None,
        size: int | None = None,
        timeout_s: float = 1800.0,
    ) -> Group:
        """A group of all workers, or of some; collective over these.

        Args:
            name: No other group has it.
            place: Of this worker in the group; its rank if not given.
            size: How many there are in it; all if not given.
            timeout_s: How long an operation may take before it fails.
        """
        place, size = self.rank if place is None else place, size or self.size
        carrier: Group = GlooGroup(
            self.store,
            rank=place,
            size=size,
            address=self.address,
            name=name,
            timeout_s=timeout_s,
        )
        if self.is_one_host and os.environ.get("REPARTO_SHARED_MEMORY") != "0":
            carrier = host_group(carrier, self.store, name=name)
        # gloo carries tensors of GPUs as well, by way of main memory
        if self.device == "cuda" and _has_own_gpu(PrefixStore(name, self.store), place, size):
            gpus = NcclGroup(self.store, rank=place, size=size, name=f"{name}-gpu")
            carrier = RoutedGroup(carrier, gpus)
        return carrier if self._wire is None else ThrottledGroup(carrier, self._wire)


def wire_of(rank: int) -> Wire | None:
    """The line that this worker plays, if it plays one; see `Host.line`."""
    line = os.environ.get("REPARTO_LINE")
    return Wire(from_json(Line, line), seed=rank) if line else None


def _has_own_gpu(store: Store, rank: int, size: int) -> bool:
    """Whether no two workers use the same GPU, which NCCL refuses to carry."""
    mine = torch.cuda.get_device_properties(torch.cuda.current_device())
    store.set(f"gpu/{rank}", str(mine.uuid))
    return len({store.get(f"gpu/{member}") for member in range(size)}) == size
