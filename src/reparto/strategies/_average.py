"""A mean over the last steps, for whoever looks: large steps leave much noise in the parameters.

trained   ●───●───●───●───●       goes on as it is
shown     ○───○───○───○───○       each a mean of those before, the nearest weighing most
└ evaluations, checkpoints, the end
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from reparto.comm import Group
from reparto.strategies._all_reduce import AllReduce
from reparto.strategies._async_server import AsyncServer
from reparto.strategies._base import ParameterSet, Strategy
from reparto.strategies._flat import Aside, by_type, laid, spread
from reparto.strategies._parameter_server import ParameterServer


class RunningMean:
    """Of flat parameters; the first ones count fully.

    Args:
        horizon: In calls.
    """

    def __init__(self, horizon: float) -> None:
        self._horizon = max(1.0, horizon)
        self._num_calls = 0
        self.value: Tensor | None = None

    def add(self, flat: Tensor) -> None:
        """Take in the parameters of now."""
        self._num_calls += 1
        if self.value is None or self.value.shape != flat.shape:
            self.value, self._num_calls = flat.clone(), 1
            return
        self.value.lerp_(flat, max(1 / self._horizon, 1 / self._num_calls))


class Averaged(Strategy):
    """Shows a mean over the last steps; stands before the strategy that makes them."""

    def __init__(self, group: Group, config: Any) -> None:
        super().__init__(group, config)  # type: ignore[call-arg]
        self.shows = True
        self._horizon = config.horizon
        self._learned: dict[str, ParameterSet] = {}
        self._means: dict[str, list[RunningMean]] = {}
        self._aside = Aside()

    def start(self, parameters: ParameterSet) -> None:
        """Learn of a set of parameters."""
        super().start(parameters)
        self._learned[parameters.name] = parameters
        parts = len(_parts(parameters))
        self._means[parameters.name] = [RunningMean(self._horizon) for _ in range(parts)]

    def after_step(self, parameters: ParameterSet) -> None:
        """Take in what the step has led to."""
        super().after_step(parameters)
        for mean, part in zip(self._means[parameters.name], _parts(parameters), strict=True):
            mean.add(laid(part))

    def settle(self) -> None:
        """Show the means."""
        if self._aside:
            return
        super().settle()
        for name, parameters in self._learned.items():
            for mean, part in zip(self._means[name], _parts(parameters), strict=True):
                if mean.value is not None:
                    self._aside.keep(part)
                    spread(self.agreed(mean.value), part)

    def agreed(self, mean: Tensor) -> Tensor:
        """The mean that all show; replicas are equal, and so are their means."""
        return mean

    def resume(self) -> None:
        """Go on from where the last step led."""
        self._aside.restore()
        super().resume()

    def reload(self) -> None:
        """The script has set the parameters itself."""
        self._aside.clear()
        for means in self._means.values():
            means[:] = [RunningMean(self._horizon) for _ in means]
        super().reload()


class AveragedAllReduce(Averaged, AllReduce):
    """All-reduce that shows a mean over the last steps."""


class AveragedServer(Averaged, ParameterServer):
    """A synchronous server that shows one."""


class AveragedRounds(Averaged, AsyncServer):
    """Rounds of a server that leaves out the slowest; who came late has another mean."""

    def agreed(self, mean: Tensor) -> Tensor:
        """That of the first worker."""
        return self.group.share(mean.clone())


def _parts(parameters: ParameterSet) -> list[list[Tensor]]:
    return by_type(one for one in parameters.tensors if one.is_floating_point())
