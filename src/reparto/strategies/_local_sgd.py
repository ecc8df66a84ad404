"""Local SGD: each worker takes steps of its own; now and then they average."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from reparto.comm import Group
from reparto.errors import UsageError
from reparto.spec import Cluster, Profile, Traffic
from reparto.strategies import _base, compressors
from reparto.strategies._base import ParameterSet
from reparto.strategies._replicas import Part, Replica
from reparto.strategies.compressors import Uncompressed


class LocalSGD(_base.Strategy):
    """Averages parameters every few steps, weighted by samples.

    What travels is the drift since the last round, so that it can be compressed.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(_base.Shared):
        """Settings.

        Attributes:
            sync_every: Local steps in a round.
            adapt: Whether the length of rounds follows the drift: shorter where workers pull in
                different directions, longer where they agree; ``sync_every`` is the first.
            most: The longest round, if it is adapted.
            moments: Of the optimizer, after a round: each worker ``keep``s its own, they are
                ``average``d (and travel too), or ``reset``.
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
        compressor: compressors.Config = field(default_factory=Uncompressed.Config)

        def __post_init__(self) -> None:
            if self.sync_every < 1 or self.most < self.sync_every:
                raise UsageError(
                    f"rounds of {self.sync_every} to {self.most} steps",
                    remedy="sync_every is at least 1, and not above most",
                )

        @property
        def apart(self) -> bool:
            """They do."""
            return True

        @property
        def changes(self) -> str:
            """Replicas differ."""
            return (
                f"workers take {self.sync_every} steps of their own before they average, so "
                "steps are made with the gradients of fewer samples"
            )

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """One sum a round."""
            shapes = profile.shapes or ((profile.num_parameters,),)
            size = max(1, len(cluster.hosts))
            messages = self.compressor.messages(shapes, size, every=self.sync_every)
            if self.moments != "average":
                return messages
            moments = Uncompressed.Config().messages(shapes, size, every=self.sync_every)
            return messages + 2 * moments  # of Adam; other optimizers may have one, or none

        def build(self, group: Group) -> LocalSGD:
            """The live strategy."""
            return LocalSGD(group, self)

    config: LocalSGD.Config

    def __init__(self, group: Group, config: LocalSGD.Config) -> None:
        super().__init__(group)
        self.apart = True
        self.config = config
        self.sync_every = config.sync_every
        self.compressor = config.compressor.build(group)
        self.replicas: dict[str, Replica] = {}

    def start(self, parameters: ParameterSet) -> None:
        """Remember where the workers begin."""
        self.replicas[parameters.name] = Replica(parameters)

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """The worker's own gradient is what it steps by."""
        return riders

    def after_step(self, parameters: ParameterSet) -> None:
        """Average when the round is over."""
        replica = self.replicas.get(parameters.name)
        if replica is None:
            return
        replica.stepped()
        if replica.num_steps >= self.sync_every:
            self.round(replica)

    def round(self, replica: Replica) -> None:
        """Make all workers' parameters equal."""
        drifts = [part.drift() for part in replica.parts]
        means = [
            self.mean(drift, replica.mean_weight, part)
            for drift, part in zip(drifts, replica.parts, strict=True)
        ]
        for part, mean in zip(replica.parts, means, strict=True):
            self.advance(part, mean)
        if self.config.adapt:
            self._adapt(drifts, means)
        self._treat_moments(replica)
        replica.met()

    def mean(self, drift: Tensor, weight: float, part: Part) -> Tensor:
        """The weighted mean of all workers' drifts."""
        return self.compressor.sum_over(drift.mul(weight), part.shapes, part.key)

    def advance(self, part: Part, mean: Tensor) -> None:
        """Go from the anchor by the mean drift, and meet there."""
        part.anchor += mean
        part.put(part.anchor)

    def settle(self) -> None:
        """End every round that is under way, without compression."""
        for replica in self.replicas.values():
            if replica.num_steps:
                for part in replica.parts:
                    part.anchor += self.group.sum(part.drift().mul_(replica.mean_weight))
                    part.put(part.anchor)
                self._treat_moments(replica)
                replica.met()

    def reload(self) -> None:
        """The script has set the parameters itself, alike on all workers."""
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

    def _treat_moments(self, replica: Replica) -> None:
        optimizer = replica.parameters.optimizer
        if self.config.moments == "keep" or optimizer is None:
            return
        if self.config.moments == "reset":
            optimizer.state.clear()
            return
        for number, tensors in enumerate(_moments(optimizer, replica.parameters)):
            part = Part(f"{replica.parameters.name}/moment {number}", tensors)
            part.put(self.group.sum(part.anchor.mul(replica.mean_weight)))  # never lossily

    def state_dict(self) -> dict[str, Any]:
        """The length of rounds; at a checkpoint all have ended."""
        return {"sync_every": self.sync_every}

    def load_state_dict(self, state: dict[str, Any]) -> LocalSGD:
        """Go on with that length."""
        self.sync_every = int(state.get("sync_every", self.sync_every))
        return self


def _moments(optimizer: Any, parameters: ParameterSet) -> list[list[Tensor]]:
    """State tensors shaped like their parameters, by name; the same list on every worker."""
    names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "square_avg", "sum"}
    found: dict[str, list[Tensor]] = {}
    for tensor in parameters.tensors:
        state = optimizer.state.get(tensor, {})
        for name in sorted(names & state.keys()):
            if isinstance(state[name], Tensor) and state[name].shape == tensor.shape:
                found.setdefault(name, []).append(state[name])
    return [found[name] for name in sorted(found)]
