"""Post-local SGD: all-reduce at first, local SGD afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from reparto.comm import Group
from reparto.errors import UsageError
from reparto.spec import Cluster, Profile, Traffic
from reparto.strategies._all_reduce import AllReduce
from reparto.strategies._base import ParameterSet, Strategy
from reparto.strategies._local_sgd import LocalSGD


class PostLocalSGD(LocalSGD):
    """Sums gradients for some steps, while replicas are equal, and averages parameters then."""

    @dataclass(frozen=True, kw_only=True)
    class Config(LocalSGD.Config):
        """Settings.

        Attributes:
            begin_after: Steps of all-reduce.
        """

        kind: ClassVar[str] = "post-local-sgd"
        summary: ClassVar[str] = "all-reduce for the first steps, then local-sgd"
        formula: ClassVar[str] = "2 (1 − 1/N) S a step at first, then every sync_every steps"
        paper: ClassVar[str] = "Lin et al. 2020, arXiv:1808.07217"
        begin_after: int = 100

        def __post_init__(self) -> None:
            super().__post_init__()
            if self.begin_after < 0:
                raise UsageError("begin_after is negative", remedy="give 0 or more steps")

        def traffic(self, profile: Profile, cluster: Cluster) -> Traffic:
            """That of the long run: local SGD's."""
            return super().traffic(profile, cluster)

        def build(self, group: Group) -> PostLocalSGD:
            """The live strategy."""
            return PostLocalSGD(group, self)

    def __init__(self, group: Group, config: PostLocalSGD.Config) -> None:
        super().__init__(group, config)
        self.together = Together(self, config.begin_after)

    def start(self, parameters: ParameterSet) -> None:
        """Learn of a set of parameters."""
        self.together.start(parameters)
        super().start(parameters)

    def on_gradient(self, parameters: ParameterSet, index: int) -> None:
        """Send, while replicas are together."""
        self.together.on_gradient(parameters, index)

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """The sum, while replicas are together."""
        return self.together.gradients_needed(parameters, riders)

    def discard(self, parameters: ParameterSet) -> None:
        """Forget what was started."""
        self.together.discard(parameters)

    def after_step(self, parameters: ParameterSet) -> None:
        """Part when it is time; later, average."""
        if self.apart:
            super().after_step(parameters)
        elif self.together.is_over(parameters):
            for replica in self.replicas.values():
                super().start(replica.parameters)

    def state_dict(self) -> dict[str, Any]:
        """How far it has come."""
        return {**super().state_dict(), "together": self.together.num_steps}

    def load_state_dict(self, state: dict[str, Any]) -> PostLocalSGD:
        """Go on from there."""
        super().load_state_dict(state)
        self.together.resume(int(state.get("together", 0)))
        return self


class Together:
    """The first steps of a strategy that parts its replicas later: exact sums.

    Args:
        strategy: Whose ``apart`` it sets.
        num_steps: How many steps.
    """

    def __init__(self, strategy: Strategy, num_steps: int) -> None:
        self.strategy, self.begin_after = strategy, num_steps
        self.exact = AllReduce.Config().build(strategy.group)
        self.num_steps = 0
        self._steps: dict[str, int] = {}
        strategy.apart = num_steps == 0

    def start(self, parameters: ParameterSet) -> None:
        """Learn of a set of parameters."""
        if not self.strategy.apart:
            self.exact.start(parameters)

    def on_gradient(self, parameters: ParameterSet, index: int) -> None:
        """Send."""
        if not self.strategy.apart:
            self.exact.on_gradient(parameters, index)

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """The sum; where replicas are apart, nothing."""
        return riders if self.strategy.apart else self.exact.gradients_needed(parameters, riders)

    def discard(self, parameters: ParameterSet) -> None:
        """Forget what was started."""
        if not self.strategy.apart:
            self.exact.discard(parameters)

    def is_over(self, parameters: ParameterSet) -> bool:
        """Count a step; says whether replicas part now."""
        name = parameters.name
        self._steps[name] = self._steps.get(name, 0) + 1
        self.num_steps = max(self._steps.values())
        self.strategy.apart = self.num_steps >= self.begin_after
        return self.strategy.apart

    def resume(self, num_steps: int) -> None:
        """So many steps were made before."""
        self._steps = {"before": num_steps}
        self.num_steps = num_steps
        self.strategy.apart = num_steps >= self.begin_after
