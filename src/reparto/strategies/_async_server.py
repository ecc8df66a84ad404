"""The parameter server that does not wait: each gradient makes a step when it comes.

    worker                                      server, a thread in one of the workers
    encode gradient ── header, payload ──►      decode, step with the optimizer's copy, version + 1
    set parameters  ◄── version, parameters ──  at once, or when the slowest is near enough

Staleness is the number of steps that a server has made since the worker pulled. A worker that
serves talks to itself without a message.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.errors import RefusedError
from reparto.strategies import _base
from reparto.strategies._base import ParameterSet
from reparto.strategies._desk import EXACT, Desk, Share
from reparto.strategies._flat import laid, spread
from reparto.strategies._parameter_server import (
    ParameterServer,
    assigned,
    refuse_gpus,
    server_ranks,
    shared,
)

T = TypeVar("T")

_PUSH, _PULL, _REST, _STOP = 0.0, 1.0, 2.0, 3.0
_HEADER, _PAYLOAD = 1, 2


class AsyncServer(_base.Strategy):
    """Workers push and pull at their own pace.

    Args:
        group: All workers.
        config: Of the parameter server, whose mode is not ``sync``.
    """

    def __init__(self, group: Group, config: ParameterServer.Config) -> None:
        super().__init__(group)
        self.apart = self.has_own_rates = True
        self.config = config
        self.servers = server_ranks(config.servers, group.size())
        self.compressor = config.compressor.build(group)
        self.shares: dict[str, list[Share]] = {}
        self.desk = Desk(config, group.size())
        self._requests: Any = None
        self._replies: Any = None
        self._thread: threading.Thread | None = None

    def start(self, parameters: ParameterSet) -> None:
        """Share out the tensors; whoever serves takes up its part."""
        known = self.shares.get(parameters.name)
        if known is not None:
            if sum(len(share.tensors) for share in known) == len(parameters.tensors):
                return
            raise RefusedError(
                "parameters were added while a server keeps them", remedy="set mode=sync"
            )
        refuse_unfit(parameters)
        owners = assigned([tensor.numel() for tensor in parameters.tensors], self.servers)
        made: list[Share] = []
        for server in self.servers:
            indices = [index for index, owner in enumerate(owners) if owner == server]
            key = len(self.shares) * len(self.servers) + len(made)
            made.append(Share(key, server, indices, parameters))
        self.shares[parameters.name] = made
        if self._requests is None and self.group.size() > 1:
            self._requests = self.group.beside("requests")
            self._replies = self.group.beside("replies")
            self.desk.reply = self._reply
            if self.group.rank() in self.servers:
                self._thread = threading.Thread(target=self._serve, daemon=True)
                self._thread.start()
        with self.outside():
            for share in made:
                if share.server == self.group.rank() and share.tensors:
                    self.desk.keep(share, parameters.optimizer, self.compressor)
        self.group.barrier().wait()  # nobody pushes before all keep

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """The worker's own gradient is what it pushes."""
        return riders

    def step(self, parameters: ParameterSet, local_step: Callable[[], T]) -> T:
        """Push instead of stepping, and pull."""
        refuse_closure(parameters)
        num_batches = self.group.size() if self.config.batch == "worker" else 1
        for share in self.shares.get(parameters.name, []):  # none: nothing was computed yet
            self._talk(share, _PUSH, parameters.share * num_batches)
        return None  # type: ignore[return-value]  # as optimizers give without a closure

    def _talk(self, share: Share, what: float, weight: float = 0.0) -> None:
        if not share.tensors:
            return
        rank = self.group.rank()
        payload = None
        if what == _PUSH:
            encoded = self.compressor.encode(share.gradient(self.compressor), str(share.key))
            payload = torch.cat([encoded, share.has_gradient()])
        if share.server == rank:
            with self.outside():
                if payload is not None:
                    self.desk.push(
                        share.key, rank, share.version, weight, payload, self.compressor
                    )
                share.version, flat = self.desk.pull(share.key, rank, payload is not None)
            spread(flat, share.tensors)
            return
        length = 0 if payload is None else payload.numel()
        header = torch.tensor(
            [what, share.key, share.version, weight, length], dtype=torch.float64
        )
        self._requests.send([header], share.server, _HEADER).wait()
        if payload is not None:
            self._requests.send([payload], share.server, _PAYLOAD).wait()
        version, flat = torch.zeros(1, dtype=torch.int64), laid(share.tensors)
        self._replies.recv([version], share.server, _HEADER).wait()
        self._replies.recv([flat], share.server, _PAYLOAD).wait()
        share.version = int(version)
        spread(flat, share.tensors)

    # The server's side.

    def _serve(self) -> None:
        with self.outside():
            try:
                self._answer()
            except BaseException as error:
                self.desk.fail(error)

    def _answer(self) -> None:
        num_stopped = 0
        while num_stopped < self.group.size() - 1:
            header = torch.zeros(5, dtype=torch.float64)
            work = self._requests.recv_anysource([header], _HEADER)
            work.wait()
            source = work._source_rank()
            what, key, version, weight, length = header.tolist()
            if what in (_REST, _STOP):
                num_stopped += what == _STOP
                self.desk.rest(source)
                continue
            if what == _PUSH:
                payload = torch.zeros(int(length), dtype=torch.uint8)
                self._requests.recv([payload], source, _PAYLOAD).wait()
                self.desk.push(int(key), source, int(version), weight, payload, self.compressor)
            self.desk.ask(int(key), source, what == _PUSH)

    def _reply(self, target: int, version: int, flat: Tensor) -> None:
        self._replies.send([torch.tensor([version])], target, _HEADER).wait()
        self._replies.send([flat], target, _PAYLOAD).wait()

    # Looked at from outside.

    def settle(self) -> None:
        """All have pushed what they had; then all pull the same."""
        if self.group.size() == 1:
            return
        self._notify(_REST)
        self.group.barrier().wait()
        for share in (share for shares in self.shares.values() for share in shares):
            self._talk(share, _PULL)
        self.group.barrier().wait()

    def _notify(self, what: float) -> None:
        """Tell every server that this worker makes no more steps, for now or at all."""
        for server in self.servers if self._requests is not None else ():
            if server == self.group.rank():
                self.desk.rest(server)
            else:
                header = torch.tensor([what, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
                self._requests.send([header], server, _HEADER).wait()

    def reload(self) -> None:
        """The script has set the parameters itself, alike on all workers."""
        self.group.barrier().wait()
        for share in (share for shares in self.shares.values() for share in shares):
            if share.server == self.group.rank() and share.tensors:
                self.desk.reload(share)
        self.group.barrier().wait()

    def gather_state(self, parameters: ParameterSet) -> None:
        """Every server sends the state of what it keeps; nobody pushes meanwhile."""
        for share in self.shares.get(parameters.name, []):
            kept = self.desk.state_of(share) if share.server == self.group.rank() else None
            for position, state in shared(self.group, kept, share.server).items():
                if state:
                    parameters.optimizer.state[share.tensors[position]] = state

    def finish(self) -> None:
        """Let the servers go."""
        self._notify(_STOP)
        if self._thread is not None:
            self._thread.join(30)
        late = sum(kept.num_late for kept in self.desk.kept.values())
        pushed = sum(sum(kept.clocks) for kept in self.desk.kept.values())
        if late:
            self.tell(f"backup workers: {late} of {pushed} gradients came late and were left out")


def refuse_unfit(parameters: ParameterSet) -> None:
    """Refuse parameters that cannot be kept by a server."""
    refuse_gpus(parameters)
    if parameters.optimizer is None:
        raise RefusedError("parameters without an optimizer have no server", remedy=EXACT)
    if len({(tensor.dtype, tensor.device) for tensor in parameters.tensors}) > 1:
        raise RefusedError(
            "an asynchronous server keeps parameters of one type on one device", remedy=EXACT
        )


def refuse_closure(parameters: ParameterSet) -> None:
    """Refuse a step that makes gradients anew."""
    if parameters.has_closure:
        raise RefusedError("an optimizer with a closure cannot run on a server", remedy=EXACT)
