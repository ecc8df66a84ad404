"""Acceleration without edits: the same training, sooner, on the device that there is.

    loader ─► rows cut on the device ─► calls of the script ─► engine ─► one launch a step
              `_resident`                                      `_engine`   `_player`

On a GPU all of that; on a CPU data are cut at once, optimizers step in one kernel, memory is kept
between steps, and ways of computing them are tried (`_tuning`).
"""

from __future__ import annotations

import functools
import gc
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.weak import WeakTensorKeyDictionary

from reparto.runtime._capture import capture_on
from reparto.runtime._tensors import Cell
from reparto.runtime.accelerate import (
    _forked,
    _precision,
    _products,
    _proof,
    _resident,
    _saving,
    _unseen,
)
from reparto.runtime.accelerate._ahead import Ahead
from reparto.runtime.accelerate._engine import Engine
from reparto.runtime.accelerate._found import mapped
from reparto.runtime.accelerate._home import Home, mark_buffers
from reparto.runtime.accelerate._kept_memory import kept_memory
from reparto.runtime.accelerate._later import Later, now
from reparto.runtime.accelerate._opened import QUESTIONS
from reparto.runtime.accelerate._player import GraphPlayer, Player, RepeatPlayer, Stage
from reparto.runtime.accelerate._pure import PureCalls, listen
from reparto.runtime.accelerate._second_look import SecondLook
from reparto.runtime.accelerate._shortcuts import calling, handling, zeroing
from reparto.runtime.accelerate._steps import fast
from reparto.runtime.accelerate._tape import version_of
from reparto.runtime.accelerate._taped import Tape
from reparto.runtime.accelerate._tuning import Tuning
from reparto.runtime.accelerate._ways import Way, ways

if TYPE_CHECKING:
    from reparto.runtime._world import World

__all__ = ["Accelerator", "Later", "now"]

#: Data may take up so much of the memory that is free when they are first needed.
SHARE_OF_MEMORY = 0.5
#: What may hold numbers that are still on their way.
_COLLECTS = (int, float, list, Later)
#: Steps are told of that often; the script itself is told of every one.
TOLD_EVERY_S = 0.05


class Accelerator:
    """Makes one worker's training faster while it lasts.

    Args:
        device: Where the training runs.
        world: The worker's world.
        is_relaxed: Whether numbers may have less precision (TF32, bf16).
        capture: How steps are put on tape: ``graph`` for a captured graph, ``repeat`` for making
            the same calls again (tests), ``no`` for not at all.
    """

    now = staticmethod(now)

    def __init__(
        self, device: torch.device, world: World, *, is_relaxed: bool = False, capture: str = ""
    ) -> None:
        self.device, self.world, self.is_relaxed = device, world, is_relaxed
        self._is_gpu = device.type == "cuda"
        self.home = Home(device, draws_on_cpu=world.options.shared_draws)
        capture = capture or capture_on(device.type)
        makers: dict[str, Callable[[Tape], Player]] = {
            "graph": self._captured,
            "repeat": lambda tape: RepeatPlayer(tape, device, self.home),
        }
        self.engine: Engine | None = None
        if capture != "no":
            self.engine = Engine(self.home, makers[capture])
        is_ahead = self.engine is not None and not world.options.record
        self.ahead = Ahead() if is_ahead else None
        self._undo: list[Callable[[], object]] = []
        self._data: Any = WeakTensorKeyDictionary()  # versions and copies on the device
        self._stream: Any = None
        self._next_told, self._is_watched = 0.0, False
        self._precision = ""
        self._proof: _proof.Proof | None = None
        self.tuning: Tuning | None = None
        #: Whether tapes are looked at again; None for not.
        self.second_look: SecondLook | None = None
        if capture == "graph" and world.options.precision != "float64":  # names of types lie there
            self.second_look = SecondLook(
                self._graph, _precision.seconds, self.home, is_relaxed=is_relaxed
            )

    # Beginning and end.

    def install(self) -> None:
        """Begin; on a GPU, all that this thread computes goes to one stream."""
        self._undo.append(mark_buffers())
        self._replace(DataLoader, "__iter__", lambda o: _resident.iterating(self, o))
        if self._is_gpu:
            self._stream = torch.cuda.Stream(self.device)
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
            torch.cuda.set_stream(self._stream)
            torch.backends.cudnn.benchmark = not self.world.options.record
            if self.is_relaxed:
                _precision.allow_tf32()
            else:  # a CPU's numbers, as long as the script knows nothing of a GPU
                torch.backends.cudnn.allow_tf32 = False
            self._replace(torch, "compile", lambda o: self._compiled)
            self._replace(torch.nn.Module, "compile", lambda o: self._compiled)
            self._replace(torch, "save", lambda o: _saving.saving(self.home, o))
        if self.engine is not None:
            loading = torch.utils.data.dataloader._BaseDataLoaderIter
            self._replace(loading, "__next__", self._loading)
            for kind in (torch.optim.Optimizer, torch.nn.Module):
                self._replace(kind, "zero_grad", self._shortcut(zeroing))
            self._watch_modules(self.engine)
            for owner, name, made in _unseen.replacements(self.engine):
                self._replace(owner, name, made)
            for module in (torch.nn.functional, torch._tensor):
                self._replace(module, "handle_torch_function", self._shortcut(handling))
            if self.engine.opening is not None:
                for name in QUESTIONS:
                    self._replace(torch.nn.functional, name, self.engine.opening.answering)
            _forked.leave_to_parent(self.engine)
            if self.world.options.record:
                self._proof = _proof.Proof(self.world, self.engine)
            self.engine.mode.__enter__()  # type: ignore[no-untyped-call]
        elif not self._is_gpu:
            self._tune()

    def _tune(self) -> None:
        """On a CPU: try what may be faster; `verify` is to see the products, and no choice."""
        asks_for_memory = self.world.options.memory_bytes is not None
        if os.environ.get("REPARTO_TRIALS") == "0" or asks_for_memory:
            return
        if self.world.options.record:
            found: list[Way] = [*_products.ways(is_relaxed=self.is_relaxed)]
        else:
            found = ways(is_relaxed=self.is_relaxed)
            self.tuning = tuning = Tuning(found, kept_memory())
            for owner in (torch, torch.nn.Module):
                self._replace(owner, "compile", lambda o: _leaving(tuning, o))
        for way in found:
            for replacement in way.replacements():
                self._replace(*replacement)
        if self.tuning is None:
            self._undo += [
                functools.partial(way.switch, False) for way in found if way.switch(True)
            ]

    def _captured(self, tape: Tape) -> Player:
        if not self.is_relaxed:
            return self._graph(tape)
        player, self._precision = _precision.faster(
            tape, self._graph, self._first, _precision.seconds
        )
        return player

    def _first(self, tape: Tape) -> None:
        stage = Stage(tape, self.device, self.home)
        stage.rest()
        stage.play()

    def _graph(self, tape: Tape) -> Player:
        return GraphPlayer(tape, self.device, self.home, self._stream)

    def uninstall(self) -> None:
        """Put everything back."""
        if self._proof is not None:
            self._proof.finish()
        if self.engine is not None:
            self.engine.flush()
            self.engine.mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        if self.tuning is not None:
            self.tuning.finish()
        while self._undo:
            self._undo.pop()()
        if self._is_gpu:
            torch.cuda.synchronize(self.device)

    @property
    def _has_left(self) -> bool:
        """Whether this is a process that was forked off."""
        return self.engine is not None and self.engine.has_left

    def _replace(self, owner: Any, name: str, made: Callable[[Any], Any]) -> None:
        original = vars(owner)[name]
        setattr(owner, name, made(original))
        self._undo.append(lambda: setattr(owner, name, original))

    def _watch_modules(self, engine: Engine) -> None:
        original: Any = torch.nn.Module.__call__
        engine.pure = PureCalls(original, draws=not self.home.draws_on_cpu)
        engine.pure.changes.on_change = engine.changing
        for owner, name, counting in listen(engine.pure.changes):
            self._replace(owner, name, _instead(counting))

        watched = calling(engine, original)
        if self.world.options.record:
            watched = _proof.seeing(self.world, engine, watched)
        self._replace(torch.nn.Module, "__call__", lambda _: watched)

    def _shortcut(self, made: Callable[[Engine, Any], Any]) -> Callable[[Any], Any]:
        engine = self.engine
        assert engine is not None
        return lambda original: made(engine, original)

    def _compiled(self, model: Any = None, *args: Any, **settings: Any) -> Any:
        self.world.note("torch.compile is left out: whole steps are captured instead")
        return (lambda function: function) if model is None else model

    # Data.

    def _loading(self, original: Any) -> Any:
        """Batches that torch's loader makes go to the GPU as they come."""

        def __next__(loading: Any) -> Any:
            if self._has_left:
                return original(loading)
            with torch._C.DisableTorchFunction():
                batch = original(loading)
                self.world.saw_batch(batch)
                return mapped(batch, lambda one: one.to(self.device, non_blocking=True))

        return __next__

    def cut(self, rows: _resident.Rows, batches: list[Tensor], place: int, size: int) -> Any:
        """A batch; on a tape it is a call like those of the script."""
        self.world.last_batch = size
        engine = self.engine
        if engine is None:
            with torch._C.DisableTorchFunction():
                return rows(batches[place])
        engine.turn.batches = batches, place
        return engine.rows(rows, batches[place])

    def placed(self, tensors: tuple[Tensor, ...]) -> _resident.Rows | None:
        """Data, on the device; None where they take too much of its memory."""
        if self._has_left:
            return None
        known = self._data.get(tensors[0])
        now = [(id(tensor), version_of(tensor)) for tensor in tensors]
        if known is not None and known[0] == now:
            rows: _resident.Rows = known[1]
            if self._is_gpu:
                rows.refresh(tensors)
            return rows
        if self._is_gpu:
            missing = sum(tensor.nbytes for tensor in tensors)
            if missing > SHARE_OF_MEMORY * torch.cuda.mem_get_info(self.device)[0]:
                return None
        rows = _resident.Rows([tensor.detach().to(self.device) for tensor in tensors])
        self._data[tensors[0]] = (now, rows)
        return rows

    def unseen(self) -> AbstractContextManager[None]:
        """What is read inside is read by us, not by the script."""
        return self.world.gradients.unseen()

    def flush(self) -> None:
        """Draw what was put off, where one generator is for all."""
        engine = self.engine
        if engine is not None and engine.is_here and not self._is_gpu and engine.has_put_off:
            engine.flush()

    def pass_begins(self) -> None:
        """A loader starts over."""
        if self.tuning is not None:
            self.tuning.pass_begins()

    def adopt(self, tensors: list[Tensor]) -> None:
        """An optimizer was made of these."""
        with torch._C.DisableTorchFunction():
            self.home.take_in(tensors)

    # Steps.

    def stepped(self, owner: Any, optimizer: Any, hooked: Any, args: Any, kwargs: Any) -> Any:
        """Let an optimizer step, and count it."""
        engine, is_plain = self.engine, not args and not kwargs
        with torch._C.DisableTorchFunction():
            if engine is not None and is_plain and engine.plays(optimizer):
                self._count(owner)
                return None
        if engine is not None and not engine.is_here:
            with fast(optimizer, self.device.type):
                return hooked(optimizer, *args, **kwargs)
        closure = args[0] if args else kwargs.get("closure")
        self.world.in_step = True
        self.world.in_plain_step = closure is None  # what an optimizer reads is its own affair
        try:
            if engine is not None:
                result = engine.step(
                    optimizer, lambda: hooked(optimizer, *args, **kwargs), is_plain=is_plain
                )
            else:
                with fast(optimizer, self.device.type):
                    result = hooked(optimizer, *args, **kwargs)
        finally:
            self.world.in_step = self.world.in_plain_step = False
        with torch._C.DisableTorchFunction():
            self._count(owner)
        return result

    def _count(self, owner: Any) -> None:
        world, engine = self.world, self.engine
        if self._proof is not None:
            self._proof.stepped(owner)
        owner.num_steps += 1
        if self.tuning is not None:
            self.tuning.stepped(owner, world.last_batch)
        if owner.num_steps <= world.num_steps:
            return
        if world.num_steps == 2:
            gc.collect()
            gc.freeze()  # what is there now stays: later collections need not look at it
        now = time.perf_counter()
        if now < self._next_told and world.num_steps > 1 and not self._is_watched:
            world.num_steps = owner.num_steps
            world.num_samples += world.last_batch
            world.last_step = now
        else:
            self._next_told = now + TOLD_EVERY_S
            options = world.options
            is_wanted = options.losses or options.stops_early or world.recorder is not None
            self._is_watched = bool(is_wanted)
            world._samples += world.last_batch
            self._tell_loss()
            world.stepped(owner)
            if engine is not None and self.second_look is not None:
                with engine.busy():
                    self.second_look.now(engine)
        world.leave_if_done()

    def _tell_loss(self) -> None:
        engine = self.engine
        if engine is None or engine.root is None or engine.root.numel() != 1:
            return
        root = engine.real(engine.root).detach()
        self.world.loss = Cell(root.reshape(()).cpu())
        self.world.loss.total = self.world.loss.local

    def later(self, tensor: Any, into: Any = 0) -> Any:
        """A number that nothing in the loop depends on; at once where that costs nothing."""
        is_fit = type(into) in _COLLECTS and isinstance(tensor, Tensor)
        if self.engine is None or not is_fit:
            value = tensor.item()
            self.world.recorded_value(value)
            return value
        value = self.engine.later(tensor)
        if self._proof is not None:
            self._proof.later(value)
        return value

    # What there is to tell.

    def told(self) -> list[str]:
        """What the user should know at the end."""
        engine = self.engine
        if engine is None or engine.num_steps == 0:
            return [] if self.tuning is None else self.tuning.told()
        if engine.num_played:
            share = f"{engine.num_played} of {engine.num_steps} steps were captured graphs"
            share += f", in {self._precision}" if self._precision else ""
            share += f"; others: {engine.reason}" if engine.reason else ""
            return [share, *([] if self.second_look is None else self.second_look.told())]
        why = engine.reason or "no two steps were alike"
        return [f"steps ran one operation at a time: {why}"]


def _leaving(tuning: Tuning, original: Any) -> Any:
    """Code that is compiled is compiled anew when threads or precision change."""

    @functools.wraps(original)
    def compile(*args: Any, **settings: Any) -> Any:
        tuning.leave()
        return original(*args, **settings)

    return compile


def _instead(made: Any) -> Callable[[Any], Any]:
    return lambda original: made
