"""The parameter server that does not wait: each gradient makes a step when it comes.

    worker                                      server, a thread in one of the workers
    encode gradient ── header, payload ──►      decode, step with the optimizer's copy, version + 1
    set parameters  ◄── version, parameters ──  at once, or when the slowest is near enough

Staleness is the number of steps that a server has made since the worker pulled. A worker that
serves talks to itself without a message.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.errors import RefusedError, WorkerError
from reparto.strategies import _base
from reparto.strategies._base import ParameterSet, grad_of, set_grad
from reparto.strategies._flat import laid, padded, spread
from reparto.strategies._parameter_server import (
    ParameterServer,
    assigned,
    refuse_gpus,
    server_ranks,
    shared,
)
from reparto.strategies.compressors import Compressor

T = TypeVar("T")

_PUSH, _PULL, _STOP = 0.0, 1.0, 2.0
_HEADER, _PAYLOAD = 1, 2
_EXACT = "take an exact strategy: --strategy all-reduce"


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
        refuse_gpus(parameters)
        if parameters.optimizer is None:
            raise RefusedError("parameters without an optimizer have no server", remedy=_EXACT)
        if len({(tensor.dtype, tensor.device) for tensor in parameters.tensors}) > 1:
            raise RefusedError(
                "an asynchronous server keeps parameters of one type on one device", remedy=_EXACT
            )
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
        if parameters.has_closure:
            raise RefusedError("an optimizer with a closure cannot run on a server", remedy=_EXACT)
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
            if what == _STOP:
                num_stopped += 1
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
        self.group.barrier().wait()
        for share in (share for shares in self.shares.values() for share in shares):
            self._talk(share, _PULL)
        self.group.barrier().wait()

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
        for server in self.servers if self._requests is not None else ():
            if server != self.group.rank():
                header = torch.tensor([_STOP, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
                self._requests.send([header], server, _HEADER).wait()
        if self._thread is not None:
            self._thread.join(30)


class Share:
    """The tensors of a set that one server keeps, as a worker sees them.

    Args:
        key: Stands for them, the same on every worker.
        server: The worker that keeps them.
        indices: Which tensors of the set.
        parameters: The set.
    """

    def __init__(
        self, key: int, server: int, indices: list[int], parameters: ParameterSet
    ) -> None:
        self.key, self.server = key, server
        self.tensors = [parameters.tensors[index] for index in indices]
        self.version = 0

    def gradient(self, compressor: Compressor) -> Tensor:
        """The gradients end to end, zeros where there is none, as long as the compressor wants."""
        grads = [grad_of(tensor) for tensor in self.tensors]
        if any(grad is not None and grad.is_sparse for grad in grads):
            raise RefusedError("an asynchronous server takes no sparse gradients", remedy=_EXACT)
        dense = [
            torch.zeros_like(tensor) if grad is None else grad
            for tensor, grad in zip(self.tensors, grads, strict=True)
        ]
        return padded(laid(dense), compressor.block)

    def has_gradient(self) -> Tensor:
        """A byte for each tensor: 1 if it has a gradient."""
        return torch.tensor([grad_of(one) is not None for one in self.tensors], dtype=torch.uint8)


class Desk:
    """What a server keeps, and who waits for it; used by several threads.

    Args:
        config: Of the parameter server.
        size: Number of workers.
    """

    def __init__(self, config: ParameterServer.Config, size: int) -> None:
        self.config, self.size = config, size
        self.bound = config.bound_for(size)
        self.kept: dict[int, Kept] = {}
        self.reply: Callable[[int, int, Tensor], None] = lambda target, version, flat: None
        self._changed = threading.Condition(threading.RLock())
        self._waiting: list[tuple[int, int]] = []
        self._failure: BaseException | None = None

    def keep(self, share: Share, optimizer: Any, compressor: Compressor) -> None:
        """Take up tensors, with a copy of the optimizer that steps for them alone."""
        with self._changed:
            like = torch.zeros_like(share.gradient(compressor))
            self.kept[share.key] = Kept(share, optimizer, self.size, like)

    def push(
        self,
        key: int,
        rank: int,
        version: int,
        weight: float,
        payload: Tensor,
        compressor: Compressor,
    ) -> None:
        """Step with a worker's gradient, and let those go who waited for it."""
        with self._changed:
            kept = self.kept[key]
            staleness = max(0, kept.version - version)
            # A slice of a batch weighs 1/N already, and is N − 1 steps stale as a rule.
            usual = self.size if self.config.batch == "script" else 1
            factor = weight * min(1.0, usual / (1.0 + staleness)) ** self.config.damping
            factor *= self.config.rate_at(kept.version // self.size)
            count = len(kept.tensors)
            flat = compressor.decode(payload[:-count].contiguous(), kept.like)
            kept.step(flat, payload[-count:].tolist(), factor)
            kept.clocks[rank] += 1
            ready = [one for one in self._waiting if self._may_go(*one)]
            self._waiting = [one for one in self._waiting if one not in ready]
            for its_key, target in ready:
                self.reply(target, *self.kept[its_key].state())
            self._changed.notify_all()

    def ask(self, key: int, rank: int, has_pushed: bool) -> None:
        """Reply to a worker, now or when it may go on."""
        with self._changed:
            if has_pushed and not self._may_go(key, rank):
                self._waiting.append((key, rank))
                return
            self.reply(rank, *self.kept[key].state())

    def pull(self, key: int, rank: int, has_pushed: bool) -> tuple[int, Tensor]:
        """The same for the worker in this process, which waits here."""
        with self._changed:
            while has_pushed and not self._may_go(key, rank):
                if self._failure is not None:
                    break
                self._changed.wait(1.0)
            if self._failure is not None:
                raise WorkerError("the parameter server has failed") from self._failure
            return self.kept[key].state()

    def _may_go(self, key: int, rank: int) -> bool:
        clocks = self.kept[key].clocks
        return clocks[rank] - min(clocks) <= self.bound

    def fail(self, error: BaseException) -> None:
        """Tell the worker in this process that its server has failed."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def reload(self, share: Share) -> None:
        """Take the parameters of the worker in this process for the true ones."""
        with self._changed, torch.no_grad():
            for ours, theirs in zip(self.kept[share.key].tensors, share.tensors, strict=True):
                ours.copy_(theirs)

    def state_of(self, share: Share) -> dict[int, Any]:
        """The optimizer's state of each tensor, by its place in the share."""
        with self._changed:
            kept = self.kept.get(share.key)
            if kept is None:
                return {}
            found = {}
            for position, tensor in enumerate(kept.tensors):
                found[position] = dict(kept.optimizer.state.get(tensor, {}))
            return found


class Kept:
    """Tensors at their server: the master copy and the optimizer's copy.

    Args:
        share: As the worker in this process sees them.
        optimizer: The script's; its rates and the like are followed.
        size: Number of workers.
        like: What a gradient looks like when it is decoded.
    """

    def __init__(self, share: Share, optimizer: Any, size: int, like: Tensor) -> None:
        copied = copy.deepcopy(optimizer)
        twins = {
            id(theirs): ours
            for their_group, our_group in zip(
                optimizer.param_groups, copied.param_groups, strict=True
            )
            for theirs, ours in zip(their_group["params"], our_group["params"], strict=True)
        }
        self.tensors = [twins[id(tensor)] for tensor in share.tensors]
        mine = {id(tensor) for tensor in self.tensors}
        for group in copied.param_groups:
            group["params"] = [tensor for tensor in group["params"] if id(tensor) in mine]
        for tensor in [one for one in copied.state if id(one) not in mine]:
            del copied.state[tensor]
        self.optimizer, self.followed = copied, optimizer
        self.sizes = [tensor.numel() for tensor in self.tensors]
        self.clocks = [0] * size
        self.version = 0
        self.like = like

    def step(self, flat: Tensor, has_gradient: list[int], factor: float) -> None:
        """Step with a gradient, rates multiplied by a factor; some tensors may have none."""
        for ours, theirs in zip(
            self.optimizer.param_groups, self.followed.param_groups, strict=True
        ):
            ours.update({name: one for name, one in theirs.items() if name != "params"})
            if ours.get("lr") is not None:
                ours["lr"] = ours["lr"] * factor
        pieces = flat[: sum(self.sizes)].split(self.sizes)
        for tensor, piece, has_one in zip(self.tensors, pieces, has_gradient, strict=True):
            set_grad(tensor, piece.view(tensor.shape).clone() if has_one else None)
        self.optimizer.step()
        self.version += 1

    def state(self) -> tuple[int, Tensor]:
        """The version, and the parameters end to end; fresh."""
        return self.version, laid(self.tensors)
