"""Parameter server: gradients go to whoever keeps a parameter, and parameters come back.

    worker 0 ─┐ push gradient                     ┌─► worker 0
    worker 1 ─┼──────────► server, in one of the  ├─► worker 1
    worker 2 ─┘            workers: sums, steps   └─► worker 2

Parameters are shared out over servers by size; the optimizer's state lives where they are kept.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.errors import RefusedError, UsageError
from reparto.spec import Cluster, Message, Profile, Traffic
from reparto.strategies import _base, compressors
from reparto.strategies._base import ParameterSet, grad_of, set_grad
from reparto.strategies._flat import by_type, laid, spread
from reparto.strategies._sparse import sum_sparse
from reparto.strategies._topology import Costs, server_order
from reparto.strategies.compressors import PowerSGD, RandomK, Uncompressed

T = TypeVar("T")

#: Optimizers of torch's that treat each parameter on its own, so that servers can share them out.
_BY_PARAMETER = frozenset(
    "SGD Adam AdamW RMSprop Adagrad Adadelta Adamax NAdam RAdam Rprop ASGD Adafactor SparseAdam "
    "Muon".split()
)


class ParameterServer(_base.Strategy):
    """Servers keep parameters and the optimizer's state; workers push gradients and pull."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Shared):
        """Settings.

        Attributes:
            servers: How many workers keep parameters, besides computing.
            dedicated: Whether servers do nothing else: so many of the workers, the last ones,
                then run no script. With ``sync``.
            mode: ``sync`` waits for all workers in each step and is exact; ``async`` steps with
                each worker's gradient as it comes; ``stale`` does so too, but holds back whoever
                is ahead of the slowest by more than ``bound`` steps.
            bound: How far ahead; ``async`` allows four times the number of workers.
            backup: With ``sync``: a step waits for all workers but so many; the gradients of the
                slowest are left out.
            damping: How steps shrink with the staleness of their gradient, where that is above
                the usual one: by N over (1 + staleness) to that power. 0 leaves them.
            memory: Without ``sync``, the optimizer's momentum lasts for so many rounds of all
                workers as alone for steps.
            lookahead: Without ``sync``, workers compute at the parameters that they expect to
                find when their gradient comes: so many times the way that momentum will make.
            warmup: Without ``sync``, rounds of all workers in which steps grow to their size.
            compressor: How gradients are made smaller on their way; not with ``sync``.
        """

        kind: ClassVar[str] = "parameter-server"
        summary: ClassVar[str] = "servers step and send parameters back; sync, async or stale"
        formula: ClassVar[str] = (
            "2 S (1 − 1/N) a step; 2 S (1 + (N − 2)/servers) over a server's link; dedicated: "
            "2 S a worker, 2 S (N − servers)/servers over a server's link"
        )
        paper: ClassVar[str] = (
            "Li et al. 2014, OSDI; Ho et al. 2013 (stale-synchronous), NIPS; Zhang et al. 2016 "
            "(staleness-aware), arXiv:1511.05950"
        )
        servers: int = 1
        dedicated: bool = False
        mode: Literal["sync", "async", "stale"] = "sync"
        bound: int = 4
        backup: int = 0
        damping: float = 1.0
        memory: float = 2.0
        lookahead: float = 2.5
        warmup: int = 60
        compressor: compressors.Config = field(default_factory=Uncompressed.Config)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.servers < 1 or min(self.bound, self.damping, self.lookahead, self.warmup) < 0:
                raise UsageError(
                    "servers is below 1, or bound, damping, lookahead or warmup below 0",
                    remedy="correct the setting",
                )
            if self.memory * 2 < 1:
                raise UsageError(f"memory={self.memory}", remedy="give at least 0.5")
            if self.backup < 0 or (self.backup and self.mode != "sync"):
                raise UsageError(
                    f"backup={self.backup} with mode={self.mode}",
                    remedy="backup workers are for mode=sync, and at least 0",
                )
            if self.dedicated and self.apart:
                raise UsageError(
                    "dedicated servers without mode=sync, or with backup",
                    remedy="leave out dedicated: such servers are threads of workers",
                )
            if not self.apart and self.compressor.is_lossy:
                raise UsageError(
                    "a synchronous server with a compressor",
                    remedy="compress all-reduce instead, or set mode=stale",
                )
            if isinstance(self.compressor, (RandomK.Config, PowerSGD.Config)):
                raise UsageError(
                    f"{self.compressor.kind} adds up over all workers at once",
                    remedy="a server decodes each gradient alone: take quantize, cast or topk",
                )

        def check(self, num_workers: int) -> None:
            """Somebody must train, and be waited for."""
            super().check(num_workers)
            if self.num_serving and num_workers - self.num_serving < 2:
                raise UsageError(
                    f"{self.servers} of {num_workers} workers only serve: fewer than two train",
                    remedy="give at least two workers more than dedicated servers",
                )
            if self.backup >= num_workers > 1:
                raise UsageError(
                    f"backup={self.backup} with {num_workers} workers",
                    remedy="leave at least one worker that is waited for",
                )

        @property
        def num_serving(self) -> int:
            """Dedicated servers."""
            return self.servers if self.dedicated else 0

        @property
        def can_average(self) -> bool:
            """Where there are rounds; dedicated servers show no mean."""
            return not self.dedicated and (self.mode == "sync" or self.backup > 0)

        @property
        def apart(self) -> bool:
            """Unless they wait for each other."""
            return self.mode != "sync" or self.backup > 0

        @property
        def changes(self) -> str:
            """Stale gradients, and larger batches if they are asked for."""
            told = [self.changes_of_batch]
            if self.backup:
                told.append(f"the gradients of the {self.backup} slowest of a step are left out")
            elif self.apart:
                told.append(
                    "each worker's gradient makes a step of its own, taken at parameters that "
                    "others have changed since"
                )
            return "; ".join(filter(None, told))

        @property
        def waits(self) -> bool:
            """Only a synchronous server waits for the slowest."""
            return not self.apart

        least_hosts: ClassVar[int] = 3

        def order(self, costs: Costs) -> list[int]:
            """Servers where all reach them best."""
            return server_order(costs, server_ranks(self.servers, len(costs)))

        def best_rate(self, num_workers: int) -> float:
            """Where each gradient makes a step of its own, there are as many as alone."""
            alone = self.apart and not self.backup
            return 1.0 if alone else super().best_rate(num_workers)

        @property
        def held(self) -> ParameterServer.Config:
            """The fastest waits for the slowest in the end, however far ahead it may be."""
            is_free = self.apart and not self.backup
            return replace(self, mode="stale", bound=1) if is_free else self

        def lead(self, num_workers: int) -> int:
            """One step, or as far as workers may go ahead."""
            return 1 + self.bound_for(num_workers) if self.apart else 1

        def bound_for(self, num_workers: int) -> int:
            """How far workers may go ahead of the slowest."""
            return self.bound if self.mode == "stale" else 4 * num_workers

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """On average over workers: gradients to the servers, parameters back."""
            num_workers = max(1, len(cluster.hosts))
            others = (num_workers - 1) / num_workers
            if self.dedicated:
                others = max(0, num_workers - self.servers) / num_workers
            there = back = profile.gradient_bytes
            if self.compressor.is_lossy:
                there = self.compressor.encoded_bytes(profile.num_parameters)
            return (
                Message(pattern="push", size_bytes=round(there * others), ready_at=1.0),
                Message(pattern="pull", size_bytes=round(back * others), ready_at=1.0),
            )

        def build(self, group: Group) -> _base.Strategy:
            """The live strategy."""
            from reparto.strategies._async_server import AsyncServer
            from reparto.strategies._average import AveragedRounds, AveragedServer

            shows = bool(self.horizon)
            if not self.apart:
                return (AveragedServer if shows else ParameterServer)(group, self)
            return (AveragedRounds if shows and self.backup else AsyncServer)(group, self)

        def build_served(self, group: Group, everyone: Group) -> _base.Strategy:
            """The live strategy where servers are dedicated."""
            from reparto.strategies._dedicated import Served

            return Served(group, everyone, self)

        def serve(self, everyone: Group) -> None:
            """What a dedicated server does until the job ends."""
            from reparto.strategies._server import Server

            Server(everyone, everyone.size() - self.num_serving).run()

    def __init__(self, group: Group, config: ParameterServer.Config) -> None:
        super().__init__(group)
        self.config = config
        self.servers = server_ranks(config.servers, group.size())
        self._owners: dict[str, list[int]] = {}
        self._present: dict[str, list[bool]] = {}
        self._sparse: dict[str, list[bool]] = {}

    def start(self, parameters: ParameterSet) -> None:
        """Share out the tensors over servers, by size."""
        refuse_gpus(parameters)
        sizes = [tensor.numel() for tensor in parameters.tensors]
        self._owners[parameters.name] = assigned(sizes, self.servers)

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """Sum at the servers; where somebody looks at gradients, bring the sums back."""
        totals = self._census(parameters, riders)
        self._push(parameters)
        parameters.is_partial = self._may_hold(parameters)
        if not parameters.is_partial:
            self.complete(parameters)
        return totals

    def _may_hold(self, parameters: ParameterSet) -> bool:
        """Whether sums may stay at their servers."""
        return parameters.is_stepping and self._is_shared_out(parameters)

    def complete(self, parameters: ParameterSet) -> None:
        """Bring the sums to every worker."""
        for server, indices in self._moving(parameters).items():
            tensors = [parameters.tensors[index] for index in indices]
            for grads in by_type(map(grad_of, tensors)):
                self._bring(server, grads)

    def _census(self, parameters: ParameterSet, riders: Sequence[float]) -> Sequence[float]:
        """Which tensors have a gradient anywhere; and what rides along."""
        grads = [grad_of(tensor) for tensor in parameters.tensors]
        present = [float(grad is not None) for grad in grads]
        sparse = [float(grad is not None and grad.is_sparse) for grad in grads]
        numbers = torch.tensor([*present, *sparse, *riders], dtype=torch.float64)
        totals: list[float] = self.group.sum(numbers).tolist()
        count = len(grads)
        is_sparse = [total > 0 for total in totals[count : 2 * count]]
        self._sparse[parameters.name] = is_sparse
        self._present[parameters.name] = [
            total > 0 and not everywhere
            for total, everywhere in zip(totals, is_sparse, strict=False)
        ]
        for tensor, total, everywhere in zip(parameters.tensors, totals, is_sparse, strict=False):
            if everywhere:
                sum_sparse(self.group, tensor)  # few rows: to everyone
            elif total > 0 and grad_of(tensor) is None:
                set_grad(tensor, torch.zeros_like(tensor))
        return totals[2 * count :]

    def _moving(self, parameters: ParameterSet) -> dict[int, list[int]]:
        """The tensors with a gradient, by the server that keeps them."""
        found: dict[int, list[int]] = {}
        present = self._present[parameters.name]
        for index, server in enumerate(self._owners[parameters.name]):
            if present[index]:
                found.setdefault(server, []).append(index)
        return found

    def _push(self, parameters: ParameterSet) -> None:
        """Sum gradients at the servers."""
        for server, indices in self._moving(parameters).items():
            self._sum_at(server, [parameters.tensors[index] for index in indices])

    def _sum_at(self, server: int, tensors: list[Tensor]) -> None:
        mine = [laid(grads) for grads in by_type(map(grad_of, tensors))]
        if self.group.rank() != server:
            for flat in mine:
                self.group.send([flat], server, 1).wait()
            return
        for flat, grads in zip(mine, by_type(map(grad_of, tensors)), strict=True):
            # In the order of ranks, so that the sum is the same in every run.
            parts = [
                flat if rank == server else self._received(flat, rank, 1)
                for rank in range(self.group.size())
            ]
            total = parts[0].clone()
            for part in parts[1:]:
                total += part
            spread(total, grads)

    def _bring(self, server: int, tensors: list[Tensor]) -> None:
        """Copy the server's tensors to every worker."""
        flat = laid(tensors)
        if self.group.rank() != server:
            spread(self._received(flat, server, 2), tensors)
            return
        works = [
            self.group.send([flat], rank, 2) for rank in range(self.group.size()) if rank != server
        ]
        for work in works:
            work.wait()

    def _received(self, like: Tensor, source: int, tag: int) -> Tensor:
        found = torch.empty_like(like)
        self.group.recv([found], source, tag).wait()
        return found

    def _is_shared_out(self, parameters: ParameterSet) -> bool:
        """Whether the optimizer can step for some of its parameters alone."""
        if parameters.optimizer is None:
            return False
        kind = parameters.optimizer.__class__
        return (
            kind.__module__.startswith("torch.optim")
            and kind.__name__ in _BY_PARAMETER
            and not parameters.has_closure
        )

    def step(self, parameters: ParameterSet, local_step: Callable[[], T]) -> T:
        """Each server steps for what it keeps, and sends the new parameters."""
        is_known = parameters.name in self._present
        if self.group.size() == 1 or not is_known or not self._is_shared_out(parameters):
            return local_step()
        rank, owners = self.group.rank(), self._owners[parameters.name]
        others = [
            (tensor, grad_of(tensor))
            for tensor, owner, everywhere in zip(
                parameters.tensors, owners, self._sparse[parameters.name], strict=True
            )
            if owner != rank and not everywhere
        ]
        for tensor, _ in others:
            set_grad(tensor, None)
        try:
            result = local_step()
        finally:
            for tensor, grad in others:
                set_grad(tensor, grad)
        with torch.no_grad():
            for server, indices in self._moving(parameters).items():
                for tensors in by_type(parameters.tensors[i] for i in indices):
                    self._bring(server, tensors)
        return result

    def gather_state(self, parameters: ParameterSet) -> None:
        """Every server sends the state of what it keeps."""
        optimizer, rank = parameters.optimizer, self.group.rank()
        if self.group.size() == 1 or not self._is_shared_out(parameters):
            return
        if parameters.name not in self._owners:
            return  # no step was made yet
        for server in self.servers:
            kept = {
                index: optimizer.state.get(parameters.tensors[index], {})
                for index, owner in enumerate(self._owners[parameters.name])
                if owner == server
            }
            for index, state in shared(self.group, kept, server).items():
                if rank != server and state:
                    optimizer.state[parameters.tensors[index]] = state


def refuse_gpus(parameters: ParameterSet) -> None:
    """Messages from one worker to another go by way of gloo, which wants main memory."""
    if any(tensor.is_cuda for tensor in parameters.tensors):
        raise RefusedError(
            "workers that talk one to one cannot send from a GPU yet",
            remedy="take all-reduce, local-sgd or diloco, or train on the CPU",
        )


def server_ranks(num_servers: int, num_workers: int) -> list[int]:
    """The workers that serve, spread over all."""
    count = min(num_servers, num_workers)
    return [number * num_workers // count for number in range(count)]


def assigned(sizes: Sequence[int], servers: Sequence[int]) -> list[int]:
    """The server of each tensor: the largest first, to whoever has the least."""
    load = dict.fromkeys(servers, 0)
    found = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        server = min(servers, key=lambda server: (load[server], server))
        load[server] += sizes[index]
        found[index] = server
    return found


def shared(group: Group, value: Any, root: int) -> Any:
    """The root's value on every worker: tensors and numbers in dictionaries."""
    payload = packed(value if group.rank() == root else None)
    length = int(group.share(torch.tensor([payload.numel()]), root))
    payload = payload if group.rank() == root else torch.empty(length, dtype=torch.uint8)
    group.share(payload, root)
    return unpacked(payload)


def packed(value: Any) -> Tensor:
    """Tensors and numbers in dictionaries and lists, as bytes."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def unpacked(payload: Tensor) -> Any:
    """What was packed."""
    return torch.load(io.BytesIO(payload.numpy().tobytes()), weights_only=True)
