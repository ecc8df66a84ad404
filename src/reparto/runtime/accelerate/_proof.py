"""What ``verify`` wants to know of an accelerated run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._later import Later

if TYPE_CHECKING:
    from reparto.runtime._world import World
    from reparto.runtime.accelerate._engine import Engine


class Snapshot:
    """Copies the gradients of all optimizers, as a call of a tape.

    Args:
        world: The worker's world.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.__name__ = "snapshot"

    def __call__(self) -> list[list[Tensor | None]]:
        owners = self._world.gradients.owners
        with torch.no_grad():
            return [[_copy(tensor.grad) for tensor in owner.tensors] for owner in owners]


def _copy(grad: Tensor | None) -> Tensor | None:
    return None if grad is None else grad.detach().clone()


class Proof:
    """Writes down losses, gradients, numbers read and the final state.

    Args:
        world: The worker's world, with its recorder.
        engine: Runs the steps.
    """

    def __init__(self, world: World, engine: Engine) -> None:
        self._world, self._engine = world, engine
        self._read: list[Any] = []
        engine.snapshot = Snapshot(world)
        engine.on_read = self._saw
        self._num_losses = 0

    def _saw(self, value: Any) -> None:
        self._read.append(value)

    def later(self, value: Any) -> None:
        """A number was asked for that may still be on its way."""
        self._read.append(value)

    def stepped(self, owner: Any) -> None:
        """An optimizer has stepped."""
        recorder, engine = self._world.recorder, self._engine
        evaluations, engine.evaluations = engine.evaluations, None
        if recorder is None or engine.gradients is None:
            return
        for root in engine.roots:
            if root.numel() == 1:
                recorder.loss(float(engine.real(root).detach()))
        engine.roots.clear()
        index = self._world.gradients.owners.index(owner)
        names = self._world._parameter_names(owner)
        for gradients in evaluations or [engine.gradients]:
            owner.num_reductions += 1
            grads = engine.real(gradients)[index]
            recorder.gradients(owner.num_reductions, owner.name, grads, names=names)

    def finish(self) -> None:
        """Numbers that were on their way are there now."""
        recorder = self._world.recorder
        if recorder is None:
            return
        for value in self._read:
            number = value.value() if isinstance(value, Later) else value
            self._world.recorded_value(number)


def seeing(world: World, engine: Engine, call: Any) -> Any:
    """Calls of modules, of which those that the script makes itself are remembered."""

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if engine.is_busy:  # inside of a call that the script has made
            return call(self, *args, **kwargs)
        world.saw_module(self)
        world.module_depth += 1
        try:
            return call(self, *args, **kwargs)
        finally:
            world.module_depth -= 1

    return __call__
