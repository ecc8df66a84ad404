"""Strategy: how replicas agree."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

from reparto.comm import Group, Stopwatch
from reparto.errors import UsageError
from reparto.spec import Cluster, Profile, Traffic
from reparto.strategies import compressors
from reparto.strategies._topology import Costs, ring_order

T = TypeVar("T")

# The attribute itself, behind whatever the runtime puts in front of ``Tensor.grad``.
_grad: Any = torch._C.TensorBase.grad


def grad_of(tensor: Tensor) -> Tensor | None:
    """The gradient that lies on a tensor, without telling the runtime that it was read."""
    found: Tensor | None = _grad.__get__(tensor)
    return found


def set_grad(tensor: Tensor, grad: Tensor | None) -> None:
    """Put a gradient on a tensor, without telling the runtime."""
    _grad.__set__(tensor, grad)


def width_of(profile: Profile) -> float:
    """Bytes of a parameter, on average."""
    return profile.gradient_bytes / max(1, profile.num_parameters)


@dataclass(frozen=True, kw_only=True)
class Config(ABC):
    """Settings of a strategy: frozen, picklable, readable by the planner.

    Subclasses add their knobs as fields, each described under ``Attributes``.

    Attributes:
        kind: Its name on the command line.
        summary: One line for people.
        formula: What a worker sends, in words and symbols: S bytes of parameters, N workers.
        paper: Where it comes from.
    """

    kind: ClassVar[str]
    summary: ClassVar[str] = ""
    formula: ClassVar[str] = ""
    paper: ClassVar[str] = ""

    @property
    def apart(self) -> bool:
        """Whether replicas take steps of their own, or may come to do so, and then differ."""
        return False

    @property
    def computes_apart(self) -> bool:
        """Whether replicas are apart in most of the steps that a prediction is about."""
        return self.apart

    @property
    def changes(self) -> str:
        """What it changes in the mathematics of the training, for people; empty if nothing."""
        return ""

    @property
    def exact(self) -> bool:
        """Whether the training is the sequential one."""
        return not self.changes

    @property
    def settled(self) -> Config:
        """What its steps are like after its beginning; a switch's as long as it has not fired."""
        return self

    @property
    def held(self) -> Config:
        """The same with less room to get ahead of others: sooner as it will be in the long run."""
        return self

    def check(self, num_workers: int) -> None:
        """Refuse settings that do not suit so many workers.

        Raises:
            UsageError: With what to do instead.
        """

    def batches_a_step(self, num_workers: int) -> int:
        """How many batches of the script's a step is made of."""
        return 1

    def balances(self, *, loads_whole: bool) -> bool:
        """Whether slices come to be in proportion to speed.

        Args:
            loads_whole: Whether batches are loaded whole, and only then cut.
        """
        return False

    @property
    def num_serving(self) -> int:
        """How many of the workers, the last ones, run no script and `serve` the others."""
        return 0

    def serve(self, everyone: Group) -> None:
        """What such a worker does until the job ends.

        Args:
            everyone: Those who run the script, and behind them those who serve.
        """
        raise NotImplementedError

    def build_served(self, group: Group, everyone: Group) -> Strategy:
        """The live strategy for one worker, where others serve.

        Args:
            group: Those who run the script.
            everyone: They, and behind them those who serve.
        """
        raise NotImplementedError

    @abstractmethod
    def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
        """What one worker sends in a step, without starting a process."""

    @abstractmethod
    def build(self, group: Group) -> Strategy:
        """The live strategy for one worker."""


@dataclass(frozen=True, kw_only=True)
class Shared(Config):
    """What strategies of several workers have in common.

    Attributes:
        batch: Whose the script's batch size is. ``script``: a step is made of one batch of the
            script, shared out. ``worker``: each worker takes a batch of that size, so a step is
            made of as many batches as there are workers, and there are fewer steps.
        rate: Factor on the learning rates that the script sets. ``auto``: the number of batches
            that a step is made of, in all.
        rate_warmup: Steps in which that factor grows from that of a single batch. ``auto``: four
            a worker.
        average: Evaluations, checkpoints and the end see a mean of the parameters over about so
            many steps; 0 shows them as they are. ``auto``: 10 where a step is made of a batch a
            worker. By all-reduce, local-sgd and diloco (``show=round``), and by parameter-server
            where it waits for workers, or for all but the slowest, and servers are not dedicated.
        balance: How a step's samples are shared out over workers. ``auto``: in proportion to
            measured speed, where workers differ; ``even``; or a weight for each, as ``2:1:1``.
        topology: Who stands beside whom. ``auto``: by the measured links, where there are enough
            hosts to choose; ``given``: by rank.
    """

    batch: Literal["script", "worker"] = "script"
    rate: float | Literal["auto"] = "auto"
    rate_warmup: int | Literal["auto"] = "auto"
    average: int | Literal["auto"] = "auto"
    balance: str = "auto"
    topology: Literal["auto", "given"] = "auto"

    def __post_init__(self) -> None:
        if self.rate_warmup != "auto" and self.rate_warmup < 0:
            raise UsageError(f"rate_warmup={self.rate_warmup}", remedy="give 0 or more steps")
        if self.rate != "auto" and not 0 < self.rate < float("inf"):
            raise UsageError(f"rate={self.rate}", remedy="give a factor above 0, or auto")
        if self.average != "auto" and self.average < 0:
            raise UsageError(f"average={self.average}", remedy="give 0 or more steps")
        if self.average not in ("auto", 0) and not self.can_average:
            raise UsageError(
                f"average={self.average}, where {self.kind} shows no mean",
                remedy="leave out average",
            )
        parts = self.balance.split(":")
        if self.balance not in ("auto", "even") and not all(map(_is_positive, parts)):
            raise UsageError(
                f"balance={self.balance}", remedy="give auto, even, or weights such as 2:1:1"
            )

    def check(self, num_workers: int) -> None:
        """A weight for each worker that trains."""
        weights = self.balance.split(":")
        num_training = num_workers - self.num_serving
        if self.balance not in ("auto", "even") and len(weights) != num_training:
            raise UsageError(
                f"balance={self.balance} weighs {len(weights)} workers, and there are "
                f"{num_training}",
                remedy="give a weight for each worker, or balance=auto",
            )

    def batches_a_step(self, num_workers: int) -> int:
        """One, or one a worker."""
        return num_workers if self.batch == "worker" else 1

    def balances(self, *, loads_whole: bool) -> bool:
        """Where workers wait; whole batches of each worker's own are not cut."""
        is_cut = self.batch == "script" or not loads_whole
        return self.waits and self.balance == "auto" and is_cut

    @property
    def waits(self) -> bool:
        """Whether workers wait for the slowest, so that it is worth giving it less to do."""
        return True

    def rate_for(self, num_workers: int) -> float:
        """The factor on learning rates."""
        return self.best_rate(num_workers) if self.rate == "auto" else self.rate

    @property
    def can_average(self) -> bool:
        """Whether evaluations can see a mean over the last steps."""
        return False

    @property
    def horizon(self) -> int:
        """Over how many steps a mean is shown; 0 for none."""
        if not self.can_average:
            return 0
        if self.average == "auto":
            return 10 if self.batch == "worker" else 0
        return self.average

    def best_rate(self, num_workers: int) -> float:
        """What ``auto`` stands for: as much of a way is made with as many samples."""
        return float(num_workers) if self.batch == "worker" else 1.0

    def rate_at(self, step: int, num_workers: int) -> float:
        """The factor on learning rates at a step, the first of which is 0."""
        last = self.rate_for(num_workers)
        first = min(last, self.best_rate(1) if self.rate == "auto" else 1.0)
        warmup = 4 * num_workers if self.rate_warmup == "auto" else self.rate_warmup
        return first + (last - first) * min(1.0, (step + 1) / (warmup + 1))

    #: With fewer hosts there is nothing to choose: all rings of three are one.
    least_hosts: ClassVar[int] = 4

    def order(self, costs: Costs) -> list[int]:
        """The workers in an order that suits the links.

        Args:
            costs: Seconds of a message between any two.
        """
        return ring_order(costs)

    def lead(self, num_workers: int) -> int:
        """By how many steps a worker can be ahead of another."""
        return 1

    @property
    def changes_of_batch(self) -> str:
        """What these settings change, for people."""
        told = []
        if self.batch == "worker":
            told.append("a step is made of one batch a worker, so there are fewer steps")
        if self.rate != "auto" and self.rate != 1.0:
            told.append(f"learning rates are multiplied by {self.rate:g}")
        elif self.best_rate(2) != self.best_rate(1):
            told.append("learning rates are multiplied to match")
        if self.horizon:
            told.append(f"evaluations see a mean over about {self.horizon} steps")
        return "; ".join(told)


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < float("inf")
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Relaxed(Shared):
    """What strategies whose replicas differ between rounds have in common."""

    @property
    def apart(self) -> bool:
        """They do."""
        return True

    def told(self, own: str, compressor: compressors.Config) -> str:
        """What a strategy changes by itself, and what its settings change besides."""
        lossily = f"what travels is sent lossily ({compressor.summary})"
        return "; ".join(
            filter(None, [own, self.changes_of_batch, lossily if compressor.is_lossy else ""])
        )


class ParameterSet:
    """Tensors that are updated together: those of one optimizer, or those updated by hand.

    Attributes:
        name: Stable over workers and runs.
        tensors: In an order that is the same on every worker.
        share: This worker's part of the last global batch; over all workers they add up to 1.
        optimizer_ref: Gives the optimizer that updates them, if the script has one.
        is_stepping: Whether their gradients are needed for a step and nobody else looks at them.
        is_partial: Set by a strategy that has put sums on some of the tensors only.
        has_closure: Whether the step is given a closure, which makes gradients anew.
        loss_ref: Gives the loss of the step, where it is known; of the global batch, unless
            replicas are apart.
        aside: Gradients by index that were global before; the runtime adds them to the sums.
    """

    def __init__(self, name: str, tensors: Sequence[Tensor]) -> None:
        self.name = name
        self.tensors = list(tensors)
        self.share = 1.0
        self.optimizer_ref: Callable[[], Any] = lambda: None
        self.is_stepping = False
        self.is_partial = False
        self.has_closure = False
        self.loss_ref: Callable[[], float | None] = lambda: None
        self.aside: dict[int, Tensor] = {}

    @property
    def optimizer(self) -> Any:
        """The optimizer that updates them, or None."""
        return self.optimizer_ref()


class Strategy(ABC):
    """How replicas agree; one object a worker, for the whole run.

    Call order, on every worker alike::

        adopt(parameters)                   before a module is called first: its part of a set
        start(parameters)                   once for each set, and again when it has grown
          backward_begins()                 before each backward pass
          on_gradient(parameters, index)    in a backward pass that is the last before a reader;
                                            with ``hears_all`` in every one
          backward_ends()                   after each backward pass
          gradients_needed(parameters, …)   before the first reader (clip, unscale, step, you)
          discard(parameters)               instead, when the script zeroed them unread
          step(parameters, local_step)      a strategy may replace the local step
          after_step(parameters)            also when GradScaler skipped the step
        settle()                            before an evaluation, a checkpoint, the end
        resume()                            before the training step that follows
        regroup(group)                      when membership changed
        finish()                            once

    Gradients arrive as each worker's term of the global gradient: they are to be *summed*. The
    runtime has weighted them. While a strategy is ``apart``, gradients are the worker's own
    estimate of the global one instead, nothing rides along, and ``settle`` makes replicas equal.
    Threads: ``on_gradient`` may come from autograd's thread, never two at once. Ownership: the
    strategy may replace the tensors on ``.grad``.

    A strategy may run threads and optimizers of its own, ``with self.outside():``, so that what
    they do is not taken for the script's doing. ``tell`` gives people a line to read. One that
    steps elsewhere applies the factor on learning rates there, and ``has_own_rates``. Waiting
    outside of the moments above is told ``with self.waiting:``.

    Attributes:
        shows: Whether ``settle`` puts other parameters in the place of those that are trained,
            though replicas are not apart.
        hears_all: Whether ``on_gradient`` comes in every backward pass, not in the last one only.

    Raises:
        RuntimeError: When a peer is gone.
    """

    hears_all: ClassVar[bool] = False

    def __init__(self, group: Group) -> None:
        self.group = group
        self.apart = False
        self.has_own_rates = False
        self.shows = False
        self.waiting = Stopwatch()
        self.outside: Callable[[], AbstractContextManager[None]] = nullcontext
        self.tell: Callable[[str], None] = lambda text: None

    def adopt(self, parameters: ParameterSet) -> None:
        """Take over parameters of a module that is about to be called; all workers have the same.

        Those that an optimizer updates come with it; with none come those that nobody updates.
        """

    def link(self, units: Sequence[Sequence[Tensor]]) -> None:
        """Parameters of one module are used together, whoever updates them."""

    def forget(self, tensor: Tensor) -> None:
        """The script has put another gradient on a tensor, or none; with ``hears_all`` only."""

    def start(self, parameters: ParameterSet) -> None:
        """Learn of a set of parameters; buckets are fixed here."""

    def backward_begins(self) -> None:
        """A backward pass is about to begin; what lies on ``.grad`` was made by others."""

    def backward_ends(self) -> None:
        """The backward pass is over."""

    def on_gradient(self, parameters: ParameterSet, index: int) -> None:
        """A gradient is complete and the backward pass goes on; sending may start."""

    @abstractmethod
    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """Put the global gradient on every tensor.

        Args:
            parameters: Whose gradients.
            riders: Numbers that travel along.

        Returns:
            The riders summed over workers.
        """

    def complete(self, parameters: ParameterSet) -> None:
        """Put the sums on all tensors after all; only where ``is_partial`` was set."""

    def scaled(self, parameters: ParameterSet, factor: float) -> None:
        """The runtime has multiplied what lies on the tensors; only with ``is_partial``."""

    def discard(self, parameters: ParameterSet) -> None:
        """The gradients were zeroed unread; forget what was started."""

    def step(self, parameters: ParameterSet, local_step: Callable[[], T]) -> T:
        """Run the optimizer's step, or replace it."""
        return local_step()

    def after_step(self, parameters: ParameterSet) -> None:
        """The step is over."""

    def settle(self) -> None:
        """Make the parameters of all replicas equal, for whoever looks; collective."""

    def resume(self) -> None:
        """Replicas may part again; called on every worker before the next training step."""

    def whole(self, tensor: Tensor) -> Tensor:
        """The plain tensor behind one that the strategy has put in its place; collective."""
        return tensor

    def gather_state(self, parameters: ParameterSet) -> None:
        """Bring the whole state of an optimizer to every worker, for a checkpoint; collective."""

    def reload(self) -> None:
        """The script has set the parameters itself (``load_state_dict``), alike on all workers."""

    def regroup(self, group: Group) -> None:
        """Go on with other members."""
        self.group = group

    def finish(self) -> None:
        """The script has ended."""

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint; collective."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> Self:
        """Take up a state; collective."""
        return self
