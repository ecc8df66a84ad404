"""What a server keeps, who waits for it, and when a gradient makes a step.

push ─► Desk ─► Kept: master copy, the optimizer's copy, version     one for each share
pull ◄─ at once, or when the rule lets the worker go on
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.errors import RefusedError, WorkerError
from reparto.strategies._base import ParameterSet, grad_of, set_grad
from reparto.strategies._flat import laid, padded
from reparto.strategies._momentum import momentum_of, set_momentum
from reparto.strategies.compressors import Compressor

if TYPE_CHECKING:
    from reparto.strategies._parameter_server import ParameterServer

#: Of optimizers with less momentum, servers take this.
LEAST_MOMENTUM = 0.9

EXACT = "take an exact strategy: --strategy all-reduce"


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
            raise RefusedError("an asynchronous server takes no sparse gradients", remedy=EXACT)
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
        self._resting: set[int] = set()
        self._failure: BaseException | None = None

    def keep(self, share: Share, optimizer: Any, compressor: Compressor) -> None:
        """Take up tensors, with a copy of the optimizer that steps for them alone."""
        with self._changed:
            like = torch.zeros_like(share.gradient(compressor))
            caution = self.size**-0.5 if self.config.batch == "worker" else 1.0
            self.kept[share.key] = Kept(share, optimizer, self.size, like, caution)

    def push(
        self,
        key: int,
        rank: int,
        version: int,
        weight: float,
        payload: Tensor,
        compressor: Compressor,
    ) -> None:
        """Take a worker's gradient, step if it is time to, and let those go who waited."""
        with self._changed:
            kept = self.kept[key]
            count = len(kept.tensors)
            flat = compressor.decode(payload[:-count].contiguous(), kept.like)
            present = payload[-count:].tolist()
            kept.clocks[rank] += 1
            kept.answered[rank] = version
            if self.config.backup:
                self._gather(kept, rank, version, weight, flat, present)
            else:
                self._step_at_once(kept, rank, version, weight, flat, present)
            self._let_go()

    def _step_at_once(
        self,
        kept: Kept,
        rank: int,
        version: int,
        weight: float,
        flat: Tensor,
        present: list[int],
    ) -> None:
        config, size = self.config, self.size
        staleness = max(0, kept.version - version)
        kept.staleness[rank] += 0.1 * (staleness - kept.staleness[rank])
        round_ = kept.version / size
        factor = weight * min(1.0, size / (1.0 + staleness)) ** config.damping
        factor *= min(1.0, (round_ + 1) / max(1, config.warmup))
        factor *= config.rate_at(int(round_), size)
        kept.step(flat, present, factor, 1 - 1 / (size * config.memory))

    def _gather(
        self,
        kept: Kept,
        rank: int,
        version: int,
        weight: float,
        flat: Tensor,
        present: list[int],
    ) -> None:
        """Add to the round, and end it when enough have come; who comes later came in vain."""
        if version < kept.version:
            kept.num_late += 1
            return
        kept.gather(rank, flat.mul_(weight), present, weight)
        self._end_round(kept)

    def _end_round(self, kept: Kept) -> None:
        if kept.givers and len(kept.givers) >= self._needed():
            kept.step_with_gathered(self.config.rate_at(kept.version, self.size))

    def _needed(self) -> int:
        """How many end a round."""
        # Fewer than those that train: with several shares, each may wait at another one.
        return max(1, self.size - self.config.backup - len(self._resting))

    def _may_end(self, kept: Kept, rank: int) -> bool:
        """Whether enough others are here or have yet to come to a worker's step.

        Those who are past it may wait for that worker: they sum a number that they decide by.
        """
        clocks = enumerate(kept.clocks)
        behind = {who for who, clock in clocks if clock < kept.clocks[rank]} - self._resting
        return len(behind | kept.givers) >= self._needed()

    def rest(self, rank: int) -> None:
        """A worker has made its steps for now: rounds end without it until it pulls."""
        with self._changed:
            self._resting.add(rank)
            for kept in self.kept.values():
                self._end_round(kept)
            self._let_go()

    def _let_go(self) -> None:
        ready = [one for one in self._waiting if self._may_go(*one)]
        self._waiting = [one for one in self._waiting if one not in ready]
        for key, target in ready:
            self._answer(key, target, has_pushed=True)
        self._changed.notify_all()

    def ask(self, key: int, rank: int, has_pushed: bool) -> None:
        """Reply to a worker, now or when it may go on."""
        with self._changed:
            if not has_pushed:
                self._resting.discard(rank)
            elif not self._may_go(key, rank):
                self._waiting.append((key, rank))
                return
            self._answer(key, rank, has_pushed=has_pushed)

    def pull(self, key: int, rank: int, has_pushed: bool) -> tuple[int, Tensor]:
        """The same for the worker in this process, which waits here."""
        with self._changed:
            if not has_pushed:
                self._resting.discard(rank)
            while has_pushed and not self._may_go(key, rank):
                if self._failure is not None:
                    break
                self._changed.wait(1.0)
            if self._failure is not None:
                raise WorkerError("the parameter server has failed") from self._failure
            return self._state_for(key, rank, has_pushed=has_pushed)

    def _answer(self, key: int, rank: int, *, has_pushed: bool) -> None:
        self.reply(rank, *self._state_for(key, rank, has_pushed=has_pushed))

    def _state_for(self, key: int, rank: int, *, has_pushed: bool) -> tuple[int, Tensor]:
        """What is kept; for one who goes on training, what it will have become."""
        version, flat = self.kept[key].state()
        if has_pushed and not self.config.backup:
            flat += self.config.lookahead * self.kept[key].way_of(rank)
        return version, flat

    def _may_go(self, key: int, rank: int) -> bool:
        kept = self.kept[key]
        is_round_over = kept.version > kept.answered[rank]
        if self.config.backup and not is_round_over and self._may_end(kept, rank):
            return False
        clocks = [one for who, one in enumerate(kept.clocks) if who not in self._resting]
        return not clocks or kept.clocks[rank] - min(clocks) <= self.bound

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
            return {position: kept.state_of(one) for position, one in enumerate(kept.tensors)}


class Kept:
    """Tensors at their server: the master copy and the optimizer's copy.

    Args:
        share: As the worker in this process sees them.
        optimizer: The script's; its rates and the like are followed.
        size: Number of workers.
        like: What a gradient looks like when it is decoded.
        caution: Factor on the rates of plain SGD.
    """

    def __init__(
        self, share: Share, optimizer: Any, size: int, like: Tensor, caution: float = 1.0
    ) -> None:
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
        self.answered = [-1] * size
        self.staleness = [size - 1.0] * size
        self._caution = caution
        self._way: Tensor | None = None
        self._momentum = 0.0
        self.num_late = 0
        self.givers: set[int] = set()  # whose gradients make the next step
        self._gathered: tuple[Tensor, list[int], float] | None = None
        self.version = 0
        self.like = like

    def gather(self, rank: int, flat: Tensor, has_gradient: list[int], weight: float) -> None:
        """Add a gradient that is weighted already to those that make the next step."""
        self.givers.add(rank)
        if self._gathered is None:
            self._gathered = flat, has_gradient, weight
            return
        total, present, weights = self._gathered
        present = [max(one, two) for one, two in zip(present, has_gradient, strict=True)]
        self._gathered = total.add_(flat), present, weights + weight

    def step_with_gathered(self, factor: float) -> None:
        """Step with the mean of what was gathered."""
        assert self._gathered is not None
        total, present, weights = self._gathered
        self._gathered = None
        self.givers.clear()
        self.step(total / max(weights, 1e-30), present, factor)

    def way_of(self, rank: int) -> Tensor | float:
        """What momentum alone will add until a worker's next gradient comes."""
        if self._way is None or not self._momentum:
            return 0.0
        mu, steps = self._momentum, self.staleness[rank]
        return self._way.mul(mu * (1 - mu**steps) / (1 - mu))

    def step(
        self, flat: Tensor, has_gradient: list[int], factor: float, memory: float | None = None
    ) -> None:
        """Step with a gradient; some tensors may have none.

        Args:
            flat: The gradient.
            has_gradient: Of which tensors.
            factor: On the rates.
            memory: How momentum is lengthened: 1 − (1 − momentum) (1 − memory); None leaves it.
        """
        for ours, theirs in zip(
            self.optimizer.param_groups, self.followed.param_groups, strict=True
        ):
            ours.update({name: one for name, one in theirs.items() if name != "params"})
            if memory is not None:
                self._lengthen(ours, memory)
            if ours.get("lr") is not None:
                ours["lr"] = ours["lr"] * factor
        pieces = flat[: sum(self.sizes)].split(self.sizes)
        for tensor, piece, has_one in zip(self.tensors, pieces, has_gradient, strict=True):
            set_grad(tensor, piece.view(tensor.shape).clone() if has_one else None)
        before = laid(self.tensors) if memory is not None else None
        self.optimizer.step()
        self._way = None if before is None else laid(self.tensors).sub_(before)
        self.version += 1

    def _lengthen(self, group: dict[str, Any], memory: float) -> None:
        """Gradients of several workers come where alone one did: momentum spans as many rounds.

        Long momentum with a look ahead bears delay far better than short momentum without.
        """
        own = momentum_of(group)
        if own is None:
            return
        self._momentum = 1 - (1 - max(own, LEAST_MOMENTUM)) * (1 - memory)
        set_momentum(group, self._momentum)
        if "betas" not in group and "alpha" not in group:  # SGD: nothing holds its steps in check
            group["lr"] = group["lr"] * self._caution

    def state_of(self, tensor: Tensor) -> dict[str, Any]:
        """The optimizer's state of a tensor, as it would be with the script's own momentum."""
        state = dict(self.optimizer.state.get(tensor, {}))
        both = zip(self.optimizer.param_groups, self.followed.param_groups, strict=True)
        ours, theirs = next(
            pair for pair in both if any(one is tensor for one in pair[0]["params"])
        )
        longer, own = momentum_of(ours), momentum_of(theirs)
        if longer is None or own is None or longer == own:
            return state
        if isinstance(state.get("momentum_buffer"), Tensor):  # a sum of gradients
            scale = (1 - longer) / (1 - own)
            state["momentum_buffer"] = state["momentum_buffer"] * scale if own else None
        if isinstance(state.get("exp_avg"), Tensor):  # a mean, which the first steps divide
            step = float(state["step"])
            state["exp_avg"] = state["exp_avg"] * ((1 - own**step) / (1 - longer**step))
        return state

    def state(self) -> tuple[int, Tensor]:
        """The version, and the parameters end to end; fresh."""
        return self.version, laid(self.tensors)
