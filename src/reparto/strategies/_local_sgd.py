"""Local SGD: each worker takes steps of its own; now and then they average."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from reparto.comm import MAX, Group
from reparto.errors import UsageError
from reparto.spec import Cluster, Profile, Traffic
from reparto.strategies import _base, compressors
from reparto.strategies._average import RunningMean
from reparto.strategies._base import ParameterSet, width_of
from reparto.strategies._flat import Aside, laid, spread
from reparto.strategies._replicas import Part, Replica
from reparto.strategies._together import Together
from reparto.strategies.compressors import Uncompressed


class LocalSGD(Together):
    """Averages parameters every few steps, weighted by samples.

    What travels is the drift since the last round, so that it can be compressed.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Relaxed):
        """Settings.

        Attributes:
            sync_every: Local steps in a round.
            adapt: Whether the length of rounds follows the drift: shorter where workers pull in
                different directions, longer where they agree; ``sync_every`` is the first.
            most: The longest round, if it is adapted.
            moments: Of the optimizer, after a round: each worker ``keep``s its own, they are
                ``average``d (and travel too), or ``reset``.
            show: What evaluations and checkpoints see: the ``mean`` of all replicas, sent whole,
                or where they meet in a ``round`` that is made then, compressed like the others.
            compressor: How what travels is made smaller.
        """

        kind: ClassVar[str] = "local-sgd"
        summary: ClassVar[str] = "local steps, then parameters are averaged"
        formula: ClassVar[str] = "2 (1 − 1/N) S every sync_every steps"
        paper: ClassVar[str] = "Stich 2019, arXiv:1805.09767; Lin et al. 2020, arXiv:1808.07217"
        sync_every: int = 16
        adapt: bool = False
        most: int = 256
        moments: Literal["keep", "average", "reset"] = "keep"
        show: Literal["mean", "round"] = "mean"
        compressor: compressors.Config = field(default_factory=Uncompressed.Config)

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.sync_every < 1 or (self.adapt and self.most < self.sync_every):
                raise UsageError(
                    f"rounds of {self.sync_every} to {self.most} steps",
                    remedy="sync_every is at least 1, and not above most",
                )

        @property
        def can_average(self) -> bool:
            """Of where workers meet."""
            return True

        @property
        def changes(self) -> str:
            """Replicas differ."""
            return self.told(
                f"workers take {self.sync_every} steps of their own before they average, so "
                "steps are made with the gradients of fewer samples",
                self.compressor,
            )

        def lead(self, num_workers: int) -> int:
            """A round."""
            return max(self.sync_every, self.most) if self.adapt else self.sync_every

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """One sum a round."""
            shapes = profile.shapes or ((profile.num_parameters,),)
            size = max(1, len(cluster.hosts))
            every, width = self.sync_every, width_of(profile)
            messages = self.compressor.messages(shapes, size, every=every, width=width)
            if self.moments != "average":
                return messages
            moments = Uncompressed.Config().messages(shapes, size, every=every, width=width)
            return messages + 2 * moments  # of Adam; other optimizers may have one, or none

        def build(self, group: Group) -> LocalSGD:
            """The live strategy."""
            return LocalSGD(group, self)

    def __init__(self, group: Group, config: LocalSGD.Config, begin_after: int = 0) -> None:
        super().__init__(group, begin_after)
        self.config = config
        self.sync_every = config.sync_every
        self.compressor = config.compressor.build(group)
        self.replicas: dict[str, Replica] = {}
        self._means: dict[str, RunningMean] = {}
        self._aside = Aside()

    def start(self, parameters: ParameterSet) -> None:
        """Remember where the workers begin."""
        super().start(parameters)
        self.replicas[parameters.name] = Replica(parameters)

    def after_step(self, parameters: ParameterSet) -> None:
        """Average when the round is over."""
        if not self.apart:
            if self.part_after(parameters):
                self.reload()
            return
        replica = self.replicas[parameters.name]
        replica.stepped()
        if replica.num_steps >= self.sync_every:
            drifts = [part.fresh_drift() for part in replica.parts] if self.config.adapt else []
            means = self.round(replica)
            if self.config.adapt:
                self._adapt(drifts, means)

    def round(self, replica: Replica) -> list[Tensor]:
        """Make all workers' parameters equal, but for what compression leaves out of a drift.

        That stays in the worker's own parameters, as a drift of the next round.

        Returns:
            The mean drift of each part.
        """
        weight = replica.mean_weight
        means = [
            self.compressor.sum_over(part.drift().mul_(weight), part.shapes, part.key)
            for part in replica.parts
        ]
        for part, mean in zip(replica.parts, means, strict=True):
            left = self.compressor.left(part.key, mean.numel())
            if left is not None and weight:  # who had no samples still has what was left before
                part.left = left / weight
            self._meet(part, part.anchor + mean)
            if part.left is not None:
                part.put(part.anchor + part.left)
        self._treat_moments(replica, weight)
        replica.met()
        return means

    def settle(self) -> None:
        """End every round that is under way, and show where the workers met."""
        if self._aside or not self.apart:
            return
        is_lossy = self.config.compressor.is_lossy
        for replica in self.replicas.values():
            if replica.num_steps and self.config.show == "round":
                self.round(replica)
            elif self.config.show == "mean" and (replica.num_steps or is_lossy):
                self._average(replica)
            for part in replica.parts if is_lossy or self.config.horizon else ():
                mean = self._means.get(part.key)
                self._aside.keep(part.tensors)
                part.put(part.anchor if mean is None or mean.value is None else mean.value)

    def _average(self, replica: Replica) -> None:
        """Meet at the mean of all replicas, sent whole."""
        weight = replica.mean_weight if replica.num_steps else 1 / self.group.size()
        for part in replica.parts:
            part.left = None
            self._meet(part, part.anchor + self.group.sum(part.drift().mul_(weight)))
        self._treat_moments(replica, weight)
        replica.met()

    def _meet(self, part: Part, flat: Tensor) -> None:
        part.meet_at(flat)
        if self.config.horizon:
            horizon = self.config.horizon / self.sync_every
            self._means.setdefault(part.key, RunningMean(horizon)).add(flat)

    def resume(self) -> None:
        """Go on from the worker's own parameters."""
        self._aside.restore()

    def reload(self) -> None:
        """The script has set the parameters itself, alike on all workers."""
        self._means.clear()
        self._aside.clear()
        self.compressor.forget()
        for name, replica in list(self.replicas.items()):
            self.replicas[name] = Replica(replica.parameters)

    def _adapt(self, drifts: list[Tensor], means: list[Tensor]) -> None:
        """Lengthen rounds while workers agree: |mean drift|² over the mean of |drift|²."""
        own = sum(float(drift.double().square().sum()) for drift in drifts)
        spread = float(self.group.sum(torch.tensor([own], dtype=torch.float64))[0])
        spread /= self.group.size()
        together = sum(float(mean.double().square().sum()) for mean in means)
        alike = together / spread if spread else 1.0
        if alike > 0.6:
            self.sync_every = min(2 * self.sync_every, self.config.most)
        elif alike < 0.3:
            self.sync_every = max(1, self.sync_every // 2)

    def _treat_moments(self, replica: Replica, weight: float) -> None:
        optimizer = replica.parameters.optimizer
        if self.config.moments == "keep" or optimizer is None:
            return
        if self.config.moments == "reset":
            optimizer.state.clear()
            return
        for moments in self._everyones(_moments(optimizer, replica.parameters)):
            total = self.group.sum(laid(moments).mul_(weight))  # never lossily
            spread(total, moments)

    def _everyones(self, moments: list[dict[int, Tensor]]) -> list[list[Tensor]]:
        """Those that every worker has: one without gradients so far has no moments."""
        count = 1 + max((index for one in moments for index in one), default=-1)
        longest = torch.tensor([count])
        self.group.reduced(longest, MAX)
        has = torch.zeros(len(moments), int(longest), dtype=torch.int64)
        for row, one in enumerate(moments):
            has[row, list(one)] = 1
        common = self.group.sum(has) == self.group.size()
        found = [
            [one[index] for index in sorted(one) if common[row, index]]
            for row, one in enumerate(moments)
        ]
        return [tensors for tensors in found if tensors]


#: What torch's optimizers call the moments that can be averaged.
_NAMES = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "sum")


def _moments(optimizer: Any, parameters: ParameterSet) -> list[dict[int, Tensor]]:
    """For each of the names, the state tensors shaped like their parameters, by index."""
    found: list[dict[int, Tensor]] = [{} for _ in _NAMES]
    for index, tensor in enumerate(parameters.tensors):
        state = optimizer.state.get(tensor, {})
        for name, moments in zip(_NAMES, found, strict=True):
            value = state.get(name)
            if isinstance(value, Tensor) and value.shape == tensor.shape:
                moments[index] = value
    return found
