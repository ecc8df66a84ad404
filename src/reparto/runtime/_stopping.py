"""Stopping from outside: all workers end after the same step, and what was trained is kept.

    signal ─► every worker: asked
              worker 0, at its next step: "all end after step S", into the store
              others, at each step: is S known yet?
    step S    replicas made equal, checkpoint written, KeyboardInterrupt on all workers alike

S lies so far ahead that nobody has passed it: by how much a worker can lead, and by the time that
a signal may take to come. The script may catch the interrupt and evaluate or save, as it would
alone: all workers are at the same line. Asked a second time, a worker is interrupted at once.

Worker 0 asks by itself when the loss is as low as it shall be (``--target``), or falls no more
(``--patience``); all then leave as by ``sys.exit``.
"""

from __future__ import annotations

import gc
import math
import os
import pickle
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from reparto.measure import Trend
from reparto.runtime import _tensors
from reparto.spec import Options

if TYPE_CHECKING:
    from reparto.runtime._world import World

#: A signal reaches all workers within that time.
MARGIN_S = 0.2
#: Steps over which the loss is smoothed.
HORIZON_STEPS = 20
#: Checkpoints of stopped runs, in the folder where the script works.
FOLDER = "reparto-checkpoint"
_KEY = "reparto/stop"


class Stopping:
    """A request to end, and the step after which all workers do.

    Args:
        world: The worker's world.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_asked = self.is_over = self._is_early = False
        self.after: int | None = None
        self._looked_at = -1
        self.lead = 1
        self.store: Any = None
        self._pid = 0
        self.on_decided: Callable[[int, float], None] = lambda step, seconds: None
        self._enough = Enough(world.options) if world.options.stops_early else None

    def heed(self) -> None:
        """Take SIGINT for a request, from now on."""
        self._pid = os.getpid()
        signal.signal(signal.SIGINT, self._asked)

    def _asked(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # a loader's child
            raise KeyboardInterrupt
        is_training = self.world.num_steps > 0 and not self.is_over
        if self.is_asked or not is_training:
            raise KeyboardInterrupt
        self.is_asked = True
        if self.world.rank == 0:
            self.on_decided(0, self._step_s())  # heard; the step is not known yet

    def at_boundary(self) -> None:
        """A step is over; end here if all do."""
        num_steps = self.world.num_steps
        if self._looked_at == num_steps:
            return  # not a boundary: a pass of a step that is under way
        self._looked_at = num_steps
        if self.is_over or not (self.is_asked or self._enough is not None):
            return
        if self.after is None and self.world.rank == 0:
            self._is_early = self._has_enough()
            self.after = self._decided() if self.is_asked or self._is_early else None
        elif self.after is None:
            self._ask_what_was_decided()
        if self.after is not None and num_steps >= self.after:
            self.is_over = True
            self._end()

    def _has_enough(self) -> bool:
        if self._enough is None or self.is_asked:
            return False
        return self._enough.at(self.world.num_steps, self.world.known_loss())

    def _decided(self) -> int:
        world, num_steps = self.world, self.world.num_steps
        step_s = self._step_s()
        ahead = 0
        if world.size > 1:
            ahead = self.lead + (math.ceil(MARGIN_S / step_s) if step_s > 0 else 1)
            self.store.set(_KEY, f"{num_steps + ahead} {int(self._is_early)}")
        self.on_decided(num_steps + ahead, ahead * step_s)
        return num_steps + ahead

    def _step_s(self) -> float:
        world = self.world
        return (world.last_step - world.first_step) / max(1, world.num_steps - 1)

    def _ask_what_was_decided(self) -> None:
        if self.store.check([_KEY]):
            after, is_early = map(int, self.store.get(_KEY).split())
            self.after, self._is_early = after, bool(is_early)

    def _end(self) -> None:
        world = self.world
        world.settle()
        why = self._enough.why if self._enough is not None and self._is_early else ""
        if not (world.options.discard_writes or world.options.write_to):
            with world.gradients.unseen():
                state = state_of(world)
            if world.rank == 0:
                world.note(_saved(state, world.num_steps, why))
        raise SystemExit(0) if self._is_early else KeyboardInterrupt


class Enough:
    """Looks at the loss of each step, smoothed.

    Args:
        options: With a target or a patience.
    """

    def __init__(self, options: Options) -> None:
        self._target, self._patience = options.target, options.patience
        self._trend = Trend(HORIZON_STEPS)
        self._best, self._best_at = math.inf, 0
        self.why = ""

    def at(self, step: int, loss: float | None) -> bool:
        """Whether it is enough, after a step."""
        if loss is None:
            return False
        self._trend.add(loss)
        trend = self._trend.steady
        if trend is not None and trend < self._best:
            self._best, self._best_at = trend, step
        if self._target is not None and trend is not None and trend <= self._target:
            self.why = f"the loss has reached {trend:.4g}"
        elif self._patience is None or step - self._best_at < self._patience:
            return False
        elif trend is not None:
            self.why = f"the loss has not fallen below {self._best:.4g} for {self._patience} steps"
        elif not math.isfinite(loss):
            self.why = f"the loss is {loss}"
        return bool(self.why)


def state_of(world: World) -> dict[str, Any]:
    """Models and optimizers, whole, with the names that torch gives them; collective."""
    models = [
        {"class": type(module).__name__, "state_dict": _whole(world, module.state_dict())}
        for module in _trained_modules(world)
    ]
    optimizers = []
    for owner in world.gradients.owners:
        if owner.optimizer is not None:
            world.strategy.gather_state(owner)
            state = _whole(world, owner.optimizer.state_dict())
            optimizers.append({"class": type(owner.optimizer).__name__, "state_dict": state})
    return {
        "step": world.num_steps,
        "samples": world.num_samples,
        "models": models,
        "optimizers": optimizers,
    }


def _trained_modules(world: World) -> list[nn.Module]:
    """The outermost modules with a parameter that is trained, in the order of those."""
    place: dict[int, int] = {}
    for owner in (*world.gradients.owners, world.gradients.loose):
        for tensor in owner.tensors:
            place.setdefault(id(tensor), len(place))
    known = [one for one in gc.get_objects() if issubclass(type(one), nn.Module)]
    inner = {id(child) for one in known for child in one.modules() if child is not one}
    first = {}
    for module in known:
        own = tuple(place[id(p)] for p in module.parameters() if id(p) in place)
        if own and id(module) not in inner:
            first[own, type(module).__name__] = module
    return [first[key] for key in sorted(first)]


def _whole(world: World, value: Any) -> Any:
    if isinstance(value, Tensor):
        return _tensors.whole(world, world.strategy.whole(value.detach()))
    if isinstance(value, dict):
        return {key: _whole(world, part) for key, part in value.items()}
    if isinstance(value, list):
        return [_whole(world, part) for part in value]
    return value


def _saved(state: dict[str, Any], step: int, why: str) -> str:
    """Write the state; tell where, or why not."""
    stopped = f"stopped after step {step}" + (f": {why}" if why else "")
    path = Path(os.getcwd(), FOLDER, f"step-{step}.pt")
    try:
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".part")
        torch.save(state, partial)
        partial.replace(path)
    except (OSError, RuntimeError, TypeError, AttributeError, pickle.PicklingError) as error:
        return f"{stopped}; the checkpoint could not be written: {error}"
    return f"{stopped}; models and optimizers are saved in {FOLDER}/{path.name}"
