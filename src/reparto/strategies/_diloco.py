"""DiLoCo: many local steps, then an outer step with momentum; streamed in fragments.

step      0 ......... 16 ........ 32 ........ 48 ........ 64      sync_every 64, fragments 4
fragment  │     0      │     1     │     2     │     3     │      each is sent in its turn,
          └ sent, added up while the worker computes, applied `overlap` steps later
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.errors import UsageError
from reparto.spec import Cluster, Message, Profile, Traffic
from reparto.strategies import _base, compressors
from reparto.strategies._average import RunningMean
from reparto.strategies._base import ParameterSet, width_of
from reparto.strategies._flat import Aside
from reparto.strategies._levels import Levels, level_bytes
from reparto.strategies._momentum import at_most, rescaled
from reparto.strategies._replicas import Part, Replica
from reparto.strategies._together import Together
from reparto.strategies.compressors import Uncompressed

T = TypeVar("T")
Summed = tuple[Tensor, Tensor | None, Levels | None]


class DiLoCo(Together):
    """The script's optimizer inside, Nesterov momentum on the mean drift outside."""

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Relaxed):
        """Settings.

        Attributes:
            sync_every: Local steps between two outer steps of a parameter.
            outer_rate: Learning rate of the outer step. 1.5 gains where rounds are short and sent
                as 1 bit, and loses where nothing is compressed.
            outer_momentum: Its Nesterov momentum. ``auto``: 0.9 for rounds of one step, 0.8 below
                8, then 0.7.
            inner_momentum: The optimizer's own (Adam's first beta) is lowered to that: momentum
                belongs after the sum. ``auto``: 0 for rounds of one step, else 0.5; ``keep``
                leaves it.
            fragments: Parameters are sent in so many fragments, in turn, so that the link is used
                evenly.
            overlap: Steps for which a worker goes on while a fragment travels.
            keep: How much of the way that a worker made meanwhile is kept, from 0 to 1.
            begin_after: Steps of all-reduce before that, in which all is still in motion.
            moments: Of the optimizer: each worker ``keep``s its own, or second moments are made
                ``level`` with each outer step, so that rows that few workers have seen make
                their whole way (`_levels.py`): for embeddings and large vocabularies.
            show: What evaluations and checkpoints see: the ``mean`` of all replicas, sent whole,
                or where they meet in a ``round`` that is made then, compressed like the others.
            compressor: How drifts are made smaller.
        """

        kind: ClassVar[str] = "diloco"
        summary: ClassVar[str] = "many local steps, then an outer Nesterov step; streamed"
        formula: ClassVar[str] = "2 (1 − 1/N) S every sync_every steps, spread over fragments"
        paper: ClassVar[str] = (
            "Douillard et al. 2023, arXiv:2311.08105; Streaming DiLoCo 2025, arXiv:2501.18512"
        )
        sync_every: int = 16
        outer_rate: float = 1.0
        outer_momentum: float | Literal["auto"] = "auto"
        inner_momentum: float | Literal["auto", "keep"] = "auto"
        fragments: int = 1
        overlap: int = 0
        keep: float = 0.5
        begin_after: int = 0
        moments: Literal["keep", "level"] = "keep"
        show: Literal["mean", "round"] = "mean"
        compressor: compressors.Config = field(default_factory=Uncompressed.Config)

        def __post_init__(self) -> None:
            super().__post_init__()
            if not 1 <= self.fragments <= self.sync_every:
                raise UsageError(
                    f"{self.fragments} fragments in {self.sync_every} steps",
                    remedy="give at least 1, and not more than sync_every",
                )
            if not 0 <= self.overlap < self.sync_every // self.fragments:
                raise UsageError(
                    f"an overlap of {self.overlap} steps, where a fragment is sent every "
                    f"{self.sync_every // self.fragments}",
                    remedy="a fragment must have arrived when the next is sent",
                )
            if self.begin_after < 0 or not 0 <= self.keep <= 1 or self.outer_rate <= 0:
                raise UsageError(
                    "begin_after is at least 0, keep from 0 to 1, outer_rate above 0",
                    remedy="correct it",
                )
            if not 0 <= self.outer < 1 or not 0 <= (self.inner or 0.0) < 1:
                raise UsageError("momentum is from 0 to below 1", remedy="correct it")

        @property
        def outer(self) -> float:
            """The momentum of the outer step."""
            if self.outer_momentum != "auto":
                return self.outer_momentum
            return 0.9 if self.sync_every == 1 else 0.8 if self.sync_every < 8 else 0.7

        @property
        def inner(self) -> float | None:
            """The most that the optimizer's own momentum may be; None if it is left as it is."""
            if self.inner_momentum == "auto":
                return 0.0 if self.sync_every == 1 else 0.5
            return None if self.inner_momentum == "keep" else self.inner_momentum

        @property
        def can_average(self) -> bool:
            """Of where workers meet, if that is what they show."""
            return self.show == "round"

        @property
        def changes(self) -> str:
            """Replicas differ."""
            return self.told(
                f"workers take {self.sync_every} steps of their own, with less momentum and "
                "another rate, before an outer step with momentum brings them together",
                self.compressor,
            )

        def best_rate(self, num_workers: int) -> float:
            """Outer momentum lengthens steps; less of inner rate makes up for it."""
            return super().best_rate(num_workers) * (1 - self.outer)

        def lead(self, num_workers: int) -> int:
            """A round."""
            return self.sync_every + self.overlap

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """A fragment every so many steps, which may travel for ``overlap`` steps."""
            size = profile.num_parameters // self.fragments
            shapes = profile.shapes if self.fragments == 1 and profile.shapes else ((size,),)
            every = self.sync_every // self.fragments
            messages = tuple(
                dataclasses.replace(message, needed_at=1.0 + self.overlap)
                for message in self.compressor.messages(
                    shapes, max(1, len(cluster.hosts)), every=every, width=width_of(profile)
                )
            )
            if self.moments == "keep":
                return messages
            sent = level_bytes(profile.num_parameters)
            return (
                *messages,
                Message(
                    pattern="all-reduce", size_bytes=sent, every=self.sync_every, ready_at=1.0
                ),
            )

        @property
        def settled(self) -> DiLoCo.Config:
            """Rounds."""
            return dataclasses.replace(self, begin_after=0)

        def build(self, group: Group) -> DiLoCo:
            """The live strategy."""
            return DiLoCo(group, self)

    def __init__(self, group: Group, config: DiLoCo.Config) -> None:
        super().__init__(group, config.begin_after)
        self.config = config
        self.compressor = config.compressor.build(group)
        self.replicas: dict[str, Replica] = {}
        self.fragments: dict[str, list[Fragment]] = {}
        self._under_way: list[tuple[int, Fragment, Tensor | None, Future[Summed]]] = []
        self._courier = ThreadPoolExecutor(1, "reparto-diloco") if config.overlap else None
        self._steps: dict[str, int] = {}
        self._aside = Aside()
        self._told = False

    def start(self, parameters: ParameterSet) -> None:
        """Remember where the workers begin."""
        super().start(parameters)
        self._begin(parameters)

    def _begin(self, parameters: ParameterSet) -> None:
        self._land(lambda due, fragment: True)
        replica = Replica(parameters)
        self.replicas[parameters.name] = replica
        count = self.config.fragments
        horizon = self.config.horizon / self.config.sync_every
        self.fragments[parameters.name] = [
            Fragment(part, *bounds, f"{part.key}/{number}", number, horizon)
            for part in replica.parts
            for number, bounds in enumerate(part.pieces(count))
        ]

    def step(self, parameters: ParameterSet, local_step: Callable[[], T]) -> T:
        """Step with little momentum: the outer step has its own."""
        inner, optimizer = self.config.inner, parameters.optimizer
        if not self.apart and optimizer is not None and self.config.rate == "auto":
            # There is no outer momentum yet, for which the rate was lowered.
            with rescaled(optimizer, 1 / (1 - self.config.outer)):
                return local_step()
        if inner is None or not self.apart or optimizer is None:
            return local_step()
        with at_most(optimizer, inner):
            return local_step()

    def after_step(self, parameters: ParameterSet) -> None:
        """Send the fragment whose turn it is; apply what has arrived."""
        if not self.apart:
            if self.part_after(parameters):
                self.reload()
            return
        replica = self.replicas[parameters.name]
        replica.stepped()
        step = self._steps[parameters.name] = self._steps.get(parameters.name, 0) + 1
        every = self.config.sync_every // self.config.fragments
        if step % every == 0:
            turn = step // every % self.config.fragments
            for fragment in self.fragments[parameters.name]:
                if fragment.turn == turn:
                    self._send(fragment, replica, step)
        self._land(lambda due, fragment: fragment.is_of(replica) and due <= step)

    def _send(self, fragment: Fragment, replica: Replica, step: int) -> None:
        here, fragment.sent_at = fragment.now(), step
        weight = replica.mean_weight if replica.num_steps else 1 / self.group.size()
        if self._courier is None:  # nobody moves on meanwhile: no need to know where it was
            term, sent = here.sub_(fragment.anchor).mul_(weight), None
        else:
            term, sent = here.sub(fragment.anchor).mul_(weight), here
        levels = None
        if self.config.moments == "level" and fragment.is_first:
            levels = self._levels(replica)
        if self._courier is None:
            total: Future[Summed] = Future()
            total.set_result(self._sum(term, fragment, weight, levels))
        else:
            total = self._courier.submit(self._sum, term, fragment, weight, levels)
        self._under_way.append((step + self.config.overlap, fragment, sent, total))

    def _levels(self, replica: Replica) -> Levels:
        levels = Levels(replica.parameters)
        if not levels.has_any and not self._told:
            self._told = True
            self.tell("moments=level does nothing here: the optimizer has no second moments")
        return levels

    def _sum(
        self, term: Tensor, fragment: Fragment, weight: float, levels: Levels | None
    ) -> Summed:
        """The sum, what compression left out of this worker's own drift, and levels of moments."""
        total = self.compressor.sum_over(term, fragment.shapes, fragment.key)
        left = self.compressor.left(fragment.key, term.numel())
        if left is not None and weight:  # who had no samples still has what was left before
            fragment.left = left / weight
        if levels is not None:
            levels.meet(self.group)
        return total, None if left is None else fragment.left, levels

    def _land(self, is_due: Callable[[int, Fragment], bool]) -> None:
        """Apply what is due; wait for it if it is still on its way."""
        landing = [one for one in self._under_way if is_due(*one[:2])]
        self._under_way = [one for one in self._under_way if not is_due(*one[:2])]
        for _, fragment, sent, total in landing:
            self._outer_step(fragment, sent, total.result())

    def _outer_step(self, fragment: Fragment, sent: Tensor | None, summed: Summed) -> None:
        """Nesterov: the mean drift is the step that the outer gradient asks for.

        What compression left out stays in the worker's own parameters, as a drift of the next
        round; it is not lost, and it is where the worker computes.
        """
        mean, left, levels = summed
        if levels is not None:
            levels.apply()
        momentum, rate = self.config.outer, self.config.outer_rate
        fragment.anchor.add_(mean, alpha=rate)
        if momentum:
            fragment.velocity.mul_(momentum).add_(mean)
            fragment.anchor.add_(fragment.velocity, alpha=rate * momentum)
        if self.config.horizon:
            fragment.mean.add(fragment.anchor)
        here = fragment.anchor
        if sent is not None:
            meanwhile = fragment.now().sub_(sent)
            here = meanwhile.mul_(self.config.keep).add_(here)
        fragment.put(here if left is None else here + left)

    def settle(self) -> None:
        """Show the mean of all replicas, which stay as they are, or make a round."""
        self._land(lambda due, fragment: True)
        if not self.apart or self._aside:
            return
        if self.config.show == "round":
            self._meet()
        for replica in self.replicas.values():
            for part in replica.parts:
                self._aside.keep(part.tensors)
                if self.config.show == "mean":
                    weight = replica.mean_weight if replica.num_steps else 1 / self.group.size()
                    part.put(self.group.sum(part.flat().mul_(weight)))
        if self.config.show == "round":
            for fragment in (one for several in self.fragments.values() for one in several):
                shown = fragment.mean.value if self.config.horizon else None
                fragment.put(fragment.anchor if shown is None else shown)

    def _meet(self) -> None:
        """A round of all fragments that have not been sent since the last step."""
        for name, replica in self.replicas.items():
            step = self._steps.get(name, 0)
            for fragment in self.fragments[name]:
                if fragment.sent_at < step:
                    self._send(fragment, replica, step)
        self._land(lambda due, fragment: True)

    def resume(self) -> None:
        """Go on from the worker's own parameters."""
        self._aside.restore()

    def reload(self) -> None:
        """The script has set the parameters itself, alike on all workers."""
        self._aside.clear()
        self.compressor.forget()
        for replica in list(self.replicas.values()):
            self._begin(replica.parameters)

    def finish(self) -> None:
        """Let the courier go; the mean of all replicas was shown last, and stays."""
        self._land(lambda due, fragment: True)
        if self._courier is not None:
            self._courier.shutdown()


class Fragment:
    """A stretch of a replica's flat parameters, with its anchor and velocity.

    Args:
        part: The flat parameters.
        begin: First element.
        end: After the last element.
        key: Stands for it, the same on every worker.
        turn: When in the round it is sent.
        horizon: Over how many rounds its mean goes.
    """

    def __init__(
        self, part: Part, begin: int, end: int, key: str, turn: int, horizon: float
    ) -> None:
        self.part, self.begin, self.end, self.key, self.turn = part, begin, end, key, turn
        self._is_whole = begin == 0 and end == sum(part.sizes)
        self.shapes: list[tuple[int, ...]] = part.shapes if self._is_whole else [(end - begin,)]
        self.anchor = part.anchor[begin:end].clone()
        self.velocity = torch.zeros_like(self.anchor)
        self.mean = RunningMean(horizon)
        self.is_first = turn == 0 and part.is_first
        self.sent_at = 0
        self.left: Tensor | None = None

    def is_of(self, replica: Replica) -> bool:
        """Whether it is a stretch of that replica."""
        return any(part is self.part for part in replica.parts)

    def now(self) -> Tensor:
        """The worker's own values; fresh."""
        flat = self.part.flat()
        return flat if self._is_whole else flat[self.begin : self.end].clone()

    def put(self, values: Tensor) -> None:
        """Set the values, and leave the rest."""
        if self._is_whole:
            self.part.put(values)
            return
        flat = self.part.flat()
        flat[self.begin : self.end].copy_(values)
        self.part.put(flat)
