"""What strategies cost a worker besides computing and talking: measured on an echo.

The live strategy of each candidate runs on tensors shaped like the script's parameters, for as
many steps as lie between two rounds; who else takes part is played (`EchoGroup`).
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto import strategies
from reparto.comm import EchoGroup
from reparto.errors import UsageError
from reparto.spec import Cluster, Host, LocalCost, Pattern, Profile, StrategyConfig

if TYPE_CHECKING:
    from reparto.runtime._world import World

#: Whole rounds are timed, so often at most and for so long at least; none that would take longer
#: than the last.
REPEATS, LIMIT_S, LONGEST_S = 3, 0.15, 10.0


def measure(
    world: World, candidates: Sequence[StrategyConfig], num_workers: int
) -> list[LocalCost]:
    """Time what each candidate does of its own; those that cannot run on an echo are left out."""
    found = []
    owners = [owner for owner in world.gradients.owners if owner.tensors]
    for candidate in candidates:
        config = strategies.from_spec(candidate)
        if config.apart and not getattr(config, "waits", True) and hasattr(config, "servers"):
            continue  # its desks talk all the time, also with an echo
        with world.gradients.unseen(), contextlib.suppress(Exception):
            config.check(num_workers)
            spent = sum((_spent(config, owner, num_workers) for owner in owners), Spent())
            found.append(
                LocalCost(
                    strategy=candidate,
                    num_workers=num_workers,
                    step_s=spent.step_s,
                    cpu_s=spent.cpu_s,
                    aside_s=spent.aside_s,
                )
            )
    return found


def largest_payloads(
    candidates: Sequence[StrategyConfig], profile: Profile, num_workers: int
) -> dict[Pattern, int]:
    """For each pattern the largest payload that a candidate sends, and the patterns of servers."""
    hosts = tuple(Host(name=str(rank)) for rank in range(num_workers))
    largest: dict[Pattern, int] = {}
    for candidate in candidates:
        with contextlib.suppress(UsageError):  # it does not suit so many workers
            config = strategies.from_spec(candidate)
            config.check(num_workers)
            for message in config.traffic(profile, Cluster(hosts=hosts)):
                known = largest.get(message.pattern, 0)
                largest[message.pattern] = max(known, message.size_bytes)
    if "push" in largest:  # one worker's own way to the server
        largest["swap"] = max(largest.get("swap", 0), largest["push"])
    return largest


@dataclass(frozen=True)
class Spent:
    """What a step takes: seconds, processor seconds of this thread, and those of others."""

    step_s: float = 0.0
    cpu_s: float = 0.0
    aside_s: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.step_s + other.step_s, self.cpu_s + other.cpu_s, self.aside_s + other.aside_s
        )


def _spent(config: strategies.Config, owner: Any, num_workers: int) -> Spent:
    """A step of one set of parameters."""
    strategy = config.build(EchoGroup(num_workers))
    tensors = [torch.zeros_like(t).normal_(std=0.02) for t in owner.tensors if t.requires_grad]
    for tensor in tensors:
        tensor.requires_grad_()
    gradients = [torch.randn_like(tensor) for tensor in tensors]
    parameters = strategies.ParameterSet(owner.name, tensors)
    optimizer = alike(owner.optimizer, tensors)
    parameters.optimizer_ref = lambda: optimizer
    parameters.share, parameters.is_stepping = 1 / num_workers, True
    parameters.loss_ref = lambda: 1.0
    lay(tensors, gradients)
    if optimizer is not None:
        optimizer.step()
    strategy.start(parameters)
    strategy.resume()
    every = max(1, int(getattr(config, "sync_every", 1)))
    one = _one_step(strategy, parameters, gradients)  # sets up everything
    rounds: list[Spent] = []
    while len(rounds) < REPEATS and sum(one.step_s for one in rounds) < LIMIT_S:
        if one.step_s * every > LONGEST_S:
            break  # most steps of a long round do nothing, so this is seldom
        steps = (_one_step(strategy, parameters, gradients) for _ in range(every))
        rounds.append(sum(steps, Spent()))
    with contextlib.suppress(Exception):
        strategy.finish()
    if not rounds:
        raise TimeoutError
    return Spent(*(_middle(rounds, name) / every for name in ("step_s", "cpu_s", "aside_s")))


def _middle(rounds: Sequence[Spent], name: str) -> float:
    return float(statistics.median_low(getattr(one, name) for one in rounds))


def _one_step(
    strategy: strategies.Strategy, parameters: strategies.ParameterSet, gradients: list[Tensor]
) -> Spent:
    # Whoever packs aside may go on while gradients are laid out; the copies are this thread's.
    others = time.process_time() - time.thread_time()
    lay(parameters.tensors, gradients)
    began, cpu = time.perf_counter(), time.thread_time()
    strategy.backward_begins()
    for index in range(len(parameters.tensors) - 1, -1, -1):
        strategy.on_gradient(parameters, index)
    strategy.backward_ends()
    strategy.gradients_needed(parameters, [0.0, 0.0])
    strategy.step(parameters, lambda: None)
    strategy.after_step(parameters)
    step_s, cpu_s = time.perf_counter() - began, time.thread_time() - cpu
    if torch.get_num_threads() > 1:  # other threads help this one, and do nothing of their own
        return Spent(step_s, cpu_s)
    return Spent(step_s, cpu_s, max(0.0, time.process_time() - time.thread_time() - others))


def lay(tensors: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Put gradients on tensors; copies, which may be changed."""
    for tensor, gradient in zip(tensors, gradients, strict=True):
        strategies.set_grad(tensor, gradient.clone())


def alike(optimizer: Any, tensors: list[Tensor]) -> Any:
    """An optimizer of the same kind and settings, for other tensors; None where there is none."""
    if optimizer is None:
        return None
    made = object.__new__(type(optimizer))
    torch.optim.Optimizer.__init__(made, tensors, dict(optimizer.defaults))
    return made
