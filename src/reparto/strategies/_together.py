"""The first steps of strategies that part their replicas later: exact sums, all is equal."""

from __future__ import annotations

from collections.abc import Sequence

from reparto.comm import Group
from reparto.strategies._all_reduce import AllReduce
from reparto.strategies._base import ParameterSet, Strategy


class Together(Strategy):
    """Sums gradients for so many steps; then replicas are apart.

    Args:
        group: All workers.
        begin_after: How many steps; 0 for replicas that are apart from the beginning.
    """

    def __init__(self, group: Group, begin_after: int) -> None:
        super().__init__(group)
        self.apart = begin_after == 0
        self._begin_after = begin_after
        self._exact = AllReduce.Config().build(group)
        self._num_steps: dict[str, int] = {}

    def start(self, parameters: ParameterSet) -> None:
        """Learn of a set of parameters."""
        if not self.apart:
            self._exact.start(parameters)

    def on_gradient(self, parameters: ParameterSet, index: int) -> None:
        """Send, while replicas are together."""
        if not self.apart:
            self._exact.on_gradient(parameters, index)

    def gradients_needed(
        self, parameters: ParameterSet, riders: Sequence[float]
    ) -> Sequence[float]:
        """The sum; where replicas are apart, the worker's own gradient is what it steps by."""
        return riders if self.apart else self._exact.gradients_needed(parameters, riders)

    def discard(self, parameters: ParameterSet) -> None:
        """Forget what was started."""
        if not self.apart:
            self._exact.discard(parameters)

    def part_after(self, parameters: ParameterSet) -> bool:
        """Count a step that was made together; says whether replicas part now."""
        name = parameters.name
        self._num_steps[name] = self._num_steps.get(name, 0) + 1
        self.apart = max(self._num_steps.values()) >= self._begin_after
        return self.apart
