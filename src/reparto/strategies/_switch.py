"""Switch: all-reduce while the loss falls, an asynchronous server when it has flattened.

loss  ╲
       ╲__           mean of a window against the one before: fell by less than threshold?
          ╲______________
step  0 … all-reduce … S │ each worker's gradient makes a step of its own
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch

from reparto.comm import Group
from reparto.errors import RefusedError, UsageError
from reparto.spec import Cluster, Profile, Traffic
from reparto.strategies import _base
from reparto.strategies._all_reduce import AllReduce
from reparto.strategies._async_server import refuse_closure, refuse_unfit
from reparto.strategies._base import ParameterSet, Strategy
from reparto.strategies._parameter_server import ParameterServer

T = TypeVar("T")


class Switch(Strategy):
    """All-reduce until the loss flattens, then a server that does not wait."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Relaxed):
        """Settings.

        Attributes:
            window: So many steps are averaged, and compared with as many before them.
            threshold: The loss has flattened when it fell by less than that part of itself.
            begin_after: Steps of all-reduce that are made in any case.
            servers: How many workers keep parameters afterwards.
            mode: How they wait afterwards, as of parameter-server.
            bound: How far a worker may be ahead with ``stale``.
        """

        kind: ClassVar[str] = "switch"
        summary: ClassVar[str] = "all-reduce until the loss flattens, then asynchronous server"
        formula: ClassVar[str] = "2 (1 − 1/N) S a step, before and after"
        paper: ClassVar[str] = "Sync-Switch, Li et al. 2021, arXiv:2104.08364"
        window: int = 50
        threshold: float = 0.02
        begin_after: int = 0
        servers: int = 1
        mode: Literal["async", "stale"] = "async"
        bound: int = 4

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.window < 1 or self.begin_after < 0:
                raise UsageError(
                    "window is at least 1 step, begin_after at least 0", remedy="correct it"
                )
            self.afterwards.__post_init__()

        @property
        def afterwards(self) -> ParameterServer.Config:
            """The settings of the server."""
            return ParameterServer.Config(
                servers=self.servers,
                mode=self.mode,
                bound=self.bound,
                batch=self.batch,
                rate=1.0 if self.rate == "auto" else self.rate,
                balance=self.balance,
            )

        @property
        def changes(self) -> str:
            """What the server changes, once the loss has flattened."""
            return f"when the loss has flattened, {self.afterwards.changes}"

        @property
        def settled(self) -> AllReduce.Config:
            """All-reduce, of which nobody looks at speeds."""
            balance = "even" if self.balance == "auto" else self.balance
            return AllReduce.Config(batch=self.batch, rate=self.rate, balance=balance, average=0)

        @property
        def computes_apart(self) -> bool:
            """Not before it fires, and nobody knows when that will be."""
            return False

        @property
        def waits(self) -> bool:
            """Not for long: looking at everyone's speed would make all wait."""
            return False

        def lead(self, num_workers: int) -> int:
            """As far as the server lets workers go ahead."""
            return self.afterwards.lead(num_workers)

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """That of all-reduce: it is not known for how long."""
            return AllReduce.Config().traffic(profile, cluster)

        def build(self, group: Group) -> Switch:
            """The live strategy."""
            return Switch(group, self)

    def __init__(self, group: Group, config: Switch.Config) -> None:
        super().__init__(group)
        self.config = config
        self.fired_at: int | None = None
        self._now: Strategy = AllReduce.Config().build(group)
        self._sets: dict[str, ParameterSet] = {}
        self._losses: list[float] = []
        self._before: float | None = None
        self._num_steps = 0

    def after_step(self, parameters: ParameterSet) -> None:
        """Look at the loss of the set that steps first, and switch when it has flattened."""
        self._now.after_step(parameters)
        if self.fired_at is not None or parameters is not next(iter(self._sets.values()), None):
            return
        self._num_steps += 1
        loss = parameters.loss_ref()
        if loss is not None:
            self._losses.append(loss)
        if self._num_steps % self.config.window == 0 and self._is_flat():
            self._fire()

    def _is_flat(self) -> bool:
        if not self._losses:
            raise RefusedError(
                "the loss is not known, so it cannot be told when it flattens",
                remedy="call backward() on a loss of one number, or take another strategy",
            )
        mean = statistics.mean(self._losses)
        before, self._before = self._before, mean
        self._losses.clear()
        if before is None or self._num_steps < self.config.begin_after:
            return False
        is_flat = before - mean < self.config.threshold * abs(before)
        # One decides: elsewhere the last bit may be another one.
        return bool(self.group.share(torch.tensor([is_flat], dtype=torch.int64))[0])

    def _fire(self) -> None:
        self.fired_at = self._num_steps
        self._now = self.config.afterwards.build(self.group)
        self._now.outside, self._now.tell = self.outside, self.tell
        for parameters in self._sets.values():
            self._now.start(parameters)
        self.apart, self.has_own_rates = self._now.apart, self._now.has_own_rates
        self.tell(f"switch: the loss has flattened; asynchronous after step {self.fired_at}")

    # What the strategy of the moment does.

    def start(self, parameters: ParameterSet) -> None:
        """Learn of a set of parameters, which must suit both."""
        if parameters.optimizer is not None:
            refuse_unfit(parameters)
        self._sets[parameters.name] = parameters
        self._now.start(parameters)

    def on_gradient(self, parameters: ParameterSet, index: int) -> None:
        """Send, during the backward pass."""
        self._now.on_gradient(parameters, index)

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """Sum; or leave the worker's own."""
        return self._now.gradients_needed(parameters, riders)

    def complete(self, parameters: ParameterSet) -> None:
        """Put the sums on all tensors."""
        self._now.complete(parameters)

    def discard(self, parameters: ParameterSet) -> None:
        """Forget what was started."""
        self._now.discard(parameters)

    def step(self, parameters: ParameterSet, local_step: Callable[[], T]) -> T:
        """Step; or push and pull."""
        refuse_closure(parameters)
        return self._now.step(parameters, local_step)

    def settle(self) -> None:
        """Make replicas equal."""
        self._now.settle()

    def resume(self) -> None:
        """Replicas may part again."""
        self._now.resume()

    def gather_state(self, parameters: ParameterSet) -> None:
        """Bring the optimizer's state to every worker."""
        self._now.gather_state(parameters)

    def reload(self) -> None:
        """The script has set the parameters itself."""
        self._now.reload()

    def regroup(self, group: Any) -> None:
        """Go on with other members."""
        super().regroup(group)
        self._now.regroup(group)

    def finish(self) -> None:
        """The script has ended."""
        if self.fired_at is None:
            self.tell(f"switch: the loss never flattened in {self._num_steps} steps of all-reduce")
        self._now.finish()
