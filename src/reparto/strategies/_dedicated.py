"""Servers that only serve: workers that run no script, and keep parameters for those who do.

    worker 0      ── what is next ──────►┐
    worker 0…n−1  ── their gradients ───►│ server: sums in the order of ranks, steps
    worker 0…n−1  ◄── new parameters ────┘

All workers do the same, so worker 0 speaks for them. A server learns of a parameter when it is
stepped first. What the script has changed by itself since (parameters, rates, the optimizer's
state, gradients that it has clipped) worker 0 sends along with the next step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from reparto.comm import Group
from reparto.strategies._base import ParameterSet, grad_of, set_grad
from reparto.strategies._flat import by_type, laid, spread
from reparto.strategies._parameter_server import (
    ParameterServer,
    assigned,
    packed,
    refuse_gpus,
    unpacked,
)
from reparto.strategies._server import (
    BRING,
    GRADIENTS,
    HEADER,
    NEWS,
    PARAMETERS,
    REPLY,
    STATE,
    STEP,
    STOP,
    SUM,
    Described,
    pieces,
    room,
)

T = TypeVar("T")


class Served(ParameterServer):
    """A worker's side, where servers are others.

    Sums are *held* at the servers from ``gradients_needed`` to the ``step`` that it was called
    for, and for no longer: in any other step worker 0 sends what lies on its tensors.

    Args:
        group: Those who run the script.
        everyone: They, and behind them the servers.
        config: Of the parameter server.
    """

    def __init__(self, group: Group, everyone: Group, config: ParameterServer.Config) -> None:
        super().__init__(group, config)
        self.everyone = everyone
        self.servers = list(range(group.size(), everyone.size()))
        self._numbers: dict[str, int] = {}
        self._held: dict[str, float] = {}  # and by what they are to be multiplied
        self._told: dict[tuple[int, str], Any] = {}
        self._known: dict[tuple[str, int], Tensor] = {}
        self._states: dict[tuple[str, int], _Mark] = {}

    def start(self, parameters: ParameterSet) -> None:
        """Share out the tensors over servers, by size; who has one keeps it."""
        refuse_gpus(parameters)
        sizes = [tensor.numel() for tensor in parameters.tensors]
        known = self._owners.get(parameters.name, [])[: len(sizes)]
        fresh = assigned(sizes[len(known) :], self.servers)
        self._owners[parameters.name] = [*known, *fresh]
        self._numbers.setdefault(parameters.name, len(self._numbers))

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """Sum at the servers; where somebody looks at gradients, bring the sums back."""
        self._held.pop(parameters.name, None)
        totals = super().gradients_needed(parameters, riders)
        if parameters.is_partial:
            self._held[parameters.name] = 1.0
        return totals

    def _may_hold(self, parameters: ParameterSet) -> bool:
        """Not where something will be added to the sums."""
        return super()._may_hold(parameters) and not parameters.aside

    def scaled(self, parameters: ParameterSet, factor: float) -> None:
        """The servers will do so, too."""
        if parameters.name in self._held:
            self._held[parameters.name] *= factor

    def _push(self, parameters: ParameterSet) -> None:
        works = []
        for server, indices in self._moving(parameters).items():
            tensors = [parameters.tensors[index] for index in indices]
            self._tell(server, SUM, parameters, self._described(server, parameters, indices))
            works += self._sent(server, [laid(one) for one in by_type(map(grad_of, tensors))])
        for work in works:
            work.wait()

    def _sent(self, server: int, flats: list[Tensor]) -> list[Any]:
        return [self.everyone.send([flat], server, GRADIENTS) for flat in flats]

    def complete(self, parameters: ParameterSet) -> None:
        """Bring the sums to every worker, where they are missed."""
        moving = self._moving(parameters)
        for server in moving:
            self._tell(server, BRING, parameters)
        for flat, tensors in self._arrived(parameters, moving):
            for tensor, piece in zip(tensors, pieces(flat, tensors), strict=True):
                grad = grad_of(tensor)
                if grad is not None and not grad.is_sparse:
                    grad.copy_(piece)

    def _arrived(
        self, parameters: ParameterSet, moving: dict[int, list[int]]
    ) -> list[tuple[Tensor, list[Tensor]]]:
        """What servers send, of all of them at once: as much as there is of these tensors."""
        arriving = []
        for server, indices in moving.items():
            for tensors in by_type(parameters.tensors[index] for index in indices):
                flat = room(tensors)
                arriving.append((self.everyone.recv([flat], server, PARAMETERS), flat, tensors))
        found = []
        for work, flat, tensors in arriving:
            work.wait()
            found.append((flat, tensors))
        return found

    def step(self, parameters: ParameterSet, local_step: Callable[[], T]) -> T:
        """Servers step; here only what is sparse does."""
        name, factor = parameters.name, self._held.pop(parameters.name, None)
        if name not in self._owners or not self._is_shared_out(parameters):
            return local_step()
        if factor is None and parameters.is_partial:  # a step was made with these before
            self.complete(parameters)
            parameters.is_partial = False
        moving = self._moving(parameters) if factor is not None else self._present_now(parameters)
        for server, indices in moving.items():
            self._ask_to_step(server, parameters, indices, factor)
        result = self._step_for_sparse(parameters, local_step)
        for flat, tensors in self._arrived(parameters, moving):
            spread(flat, tensors)
        for index in (index for indices in moving.values() for index in indices):
            self._mark(parameters, index)
        return result

    def _present_now(self, parameters: ParameterSet) -> dict[int, list[int]]:
        """The tensors that have a gradient to step with, by server."""
        found: dict[int, list[int]] = {}
        for index, tensor in enumerate(parameters.tensors):
            grad = grad_of(tensor)
            if grad is not None and not grad.is_sparse and tensor.numel():
                found.setdefault(self._owners[parameters.name][index], []).append(index)
        return found

    def _step_for_sparse(self, parameters: ParameterSet, local_step: Callable[[], T]) -> T:
        grads = [(tensor, grad_of(tensor)) for tensor in parameters.tensors]
        others = [(t, grad) for t, grad in grads if grad is not None and not grad.is_sparse]
        for tensor, _ in others:
            set_grad(tensor, None)
        try:
            return local_step()
        finally:
            for tensor, grad in others:
                set_grad(tensor, grad)

    def _ask_to_step(
        self, server: int, parameters: ParameterSet, indices: list[int], factor: float | None
    ) -> None:
        if self.group.rank() != 0:
            return
        news = self._described(server, parameters, indices)
        news.update(self._changed(server, parameters, indices))
        self._tell(server, STEP, parameters, news, factor)
        if factor is None:
            tensors = [parameters.tensors[index] for index in indices]
            flats = [laid(one) for one in by_type(map(grad_of, tensors))]
            for work in self._sent(server, flats):
                work.wait()

    def _changed(
        self, server: int, parameters: ParameterSet, indices: list[int]
    ) -> dict[str, Any]:
        """What a server does not know yet, or what the script has changed by itself."""
        optimizer, name, tensors = parameters.optimizer, parameters.name, parameters.tensors
        news: dict[str, Any] = {}
        groups, key = self._groups(server, parameters), (server, f"groups of {name}")
        if self._told.get(key) != (told := _plain(groups)):
            self._told[key] = told
            news = {"class": type(optimizer).__name__, "groups": groups}
        for index in indices:
            tensor = tensors[index].detach()
            known = self._known.get((name, index))
            if known is None or not torch.equal(known, tensor):
                news.setdefault("parameters", {})[index] = tensor.clone()
            state, mark = optimizer.state.get(tensors[index]), self._states.get((name, index))
            if (mark is None and state) or (mark is not None and not mark.is_of(state)):
                news.setdefault("state", {})[index] = dict(state or {})
        return news

    def _groups(self, server: int, parameters: ParameterSet) -> list[dict[str, Any]]:
        """The optimizer's settings, and which tensors of the server they are for."""
        optimizer, owners = parameters.optimizer, self._owners[parameters.name]
        place = {id(tensor): index for index, tensor in enumerate(parameters.tensors)}
        found = []
        for group in optimizer.param_groups:
            indices = [place[id(one)] for one in group["params"] if id(one) in place]
            settings = {
                key: _number(one) for key, one in group.items() if key in optimizer.defaults
            }
            found.append({**settings, "params": [one for one in indices if owners[one] == server]})
        return found

    def _mark(self, parameters: ParameterSet, index: int) -> None:
        """Remember what the server knows. An optimizer's state that is gone is seen to be."""
        name, tensor, state = (
            parameters.name,
            parameters.tensors[index],
            parameters.optimizer.state,
        )
        if state.get(tensor) is None:
            state[tensor] = {}
        self._states[name, index] = _Mark(state[tensor])
        if self.group.rank() == 0:
            self._known[name, index] = tensor.detach().clone()

    def _described(
        self, server: int, parameters: ParameterSet, indices: list[int]
    ) -> dict[str, Any]:
        """Which tensors are meant, unless that was told before."""
        described = [Described.of(index, parameters.tensors[index]) for index in indices]
        key = server, f"tensors of {parameters.name}"
        if self._told.get(key) == described:
            return {}
        self._told[key] = described
        return {"tensors": [tuple(one) for one in described]}

    def _tell(
        self,
        server: int,
        what: int,
        parameters: ParameterSet | None,
        news: dict[str, Any] | None = None,
        factor: float | None = None,
    ) -> None:
        """Say what comes next; worker 0 does."""
        if self.group.rank() != 0:
            return
        payload = packed(news) if news else None
        number = self._numbers[parameters.name] if parameters is not None else 0
        length = 0 if payload is None else payload.numel()
        numbers = [what, number, length, factor is not None, factor or 0.0]
        header = torch.tensor([float(one) for one in numbers], dtype=torch.float64)
        self.everyone.send([header], server, HEADER).wait()
        if payload is not None:
            self.everyone.send([payload], server, NEWS).wait()

    def gather_state(self, parameters: ParameterSet) -> None:
        """Every server sends the state of what it keeps."""
        optimizer, name = parameters.optimizer, parameters.name
        if name not in self._owners or not self._is_shared_out(parameters):
            return
        for server in self.servers:
            self._tell(server, STATE, parameters)
            length = torch.zeros(1, dtype=torch.int64)
            self.everyone.recv([length], server, REPLY).wait()
            payload = torch.zeros(int(length), dtype=torch.uint8)
            self.everyone.recv([payload], server, REPLY).wait()
            for index, state in unpacked(payload).items():
                mark, now = (
                    self._states.get((name, index)),
                    optimizer.state.get(parameters.tensors[index]),
                )
                if mark is not None and mark.is_of(now):  # else the script's own counts
                    optimizer.state[parameters.tensors[index]] = state
                    self._states[name, index] = _Mark(state)

    def _is_shared_out(self, parameters: ParameterSet) -> bool:
        """Nor may the optimizer unscale gradients by itself."""
        return super()._is_shared_out(parameters) and not any(
            group.get("fused") for group in parameters.optimizer.param_groups
        )

    def finish(self) -> None:
        """Let the servers go."""
        for server in self.servers:
            self._tell(server, STOP, None)


class _Mark:
    """What an optimizer's state of a tensor was, so that a change is seen.

    Args:
        state: Of one tensor.
    """

    def __init__(self, state: Any) -> None:
        self._state = state
        self._values = {key: (one, getattr(one, "_version", None)) for key, one in state.items()}

    def is_of(self, state: Any) -> bool:
        """Whether it is still that."""
        return (
            state is self._state
            and state.keys() == self._values.keys()
            and all(
                one is self._values[key][0]
                and getattr(one, "_version", None) == self._values[key][1]
                for key, one in state.items()
            )
        )


def _plain(value: Any) -> Any:
    """Of an optimizer's settings: what tells whether they have changed, to the last bit."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _number(value: Any) -> Any:
    """A setting as it travels: numpy's numbers as Python's."""
    return value.item() if isinstance(value, np.generic) else value
