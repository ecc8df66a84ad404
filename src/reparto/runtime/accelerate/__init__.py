"""Acceleration without edits: the same training, sooner, on the device that there is.

    loader ─► rows cut on the device ─► calls of the script ─► engine ─► one launch a step
              `_resident`                                      `_engine`   `_player`

On a GPU all of that; on a CPU data are cut at once and optimizers step in one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.weak import WeakTensorKeyDictionary

from reparto.runtime.accelerate import _resident
from reparto.runtime.accelerate._engine import Engine
from reparto.runtime.accelerate._home import Home, mark_buffers
from reparto.runtime.accelerate._later import Later, now
from reparto.runtime.accelerate._player import GraphPlayer, Player, RepeatPlayer, Tape
from reparto.runtime.accelerate._pure import PureCalls, listen
from reparto.runtime.accelerate._steps import fast

__all__ = ["Accelerator", "Later", "now"]

#: Data may take up so much of the memory that is free when they are first needed.
SHARE_OF_MEMORY = 0.5


class Accelerator:
    """Makes one worker's training faster while it lasts.

    Args:
        device: Where the training runs.
        on_note: Told what the user should know.
        capture: How steps are put on tape: ``graph`` for a captured graph, ``repeat`` for making
            the same calls again (tests), ``no`` for not at all.
    """

    def __init__(
        self, device: torch.device, on_note: Callable[[str], None], capture: str = ""
    ) -> None:
        self.device, self.note = device, on_note
        self.home = Home(device)
        capture = capture or ("graph" if device.type == "cuda" else "no")
        self._makers: dict[str, Callable[[Tape], Player]] = {
            "graph": self._graph,
            "repeat": lambda tape: RepeatPlayer(tape, device, self.home.on_device),
        }
        self.engine: Engine | None = None
        if capture != "no":
            self.engine = Engine(self.home, self._makers[capture], on_note)
        self._undo: list[Callable[[], None]] = []
        self._data: Any = WeakTensorKeyDictionary()  # versions and copies on the device
        self._stream: Any = None

    def _graph(self, tape: Tape) -> Player:
        return GraphPlayer(tape, self.device, self.home.on_device, self._stream)

    def install(self) -> None:
        """Begin; on a GPU, all that this thread computes goes to one stream."""
        self._undo.append(mark_buffers())
        self._replace(DataLoader, "__iter__", lambda o: _resident.iterating(self, o))
        if self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
            torch.cuda.set_stream(self._stream)
        if self.engine is not None:
            for kind in (torch.optim.Optimizer, torch.nn.Module):
                self._replace(kind, "zero_grad", self._zeroing)
            self._watch_modules(self.engine)
            for module in (torch.nn.functional, torch._tensor):
                self._replace(module, "handle_torch_function", self.engine.handled)
            self.engine.mode.__enter__()

    def uninstall(self) -> None:
        """Put everything back."""
        if self.engine is not None:
            self.engine.flush()
            self.engine.mode.__exit__(None, None, None)
        while self._undo:
            self._undo.pop()()
        if self._stream is not None:
            torch.cuda.synchronize(self.device)

    def _replace(self, owner: Any, name: str, made: Callable[[Any], Any]) -> None:
        original = vars(owner)[name]
        setattr(owner, name, made(original))
        self._undo.append(lambda: setattr(owner, name, original))

    def _watch_modules(self, engine: Engine) -> None:
        original: Any = torch.nn.Module.__call__
        engine.pure = PureCalls(original)
        for owner, name, counting in listen(engine.pure.changes):
            self._replace(owner, name, lambda _, made=counting: made)

        def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
            return engine.module(self, original, args, kwargs)

        self._replace(torch.nn.Module, "__call__", lambda _: __call__)

    def _zeroing(self, original: Any) -> Any:
        engine = self.engine
        assert engine is not None

        def zero_grad(self: Any, *args: Any, **kwargs: Any) -> None:
            engine.zero_grad(self, original, args, kwargs)

        return zero_grad

    def adopt(self, tensors: list[Tensor]) -> None:
        """An optimizer was made of these."""
        with torch._C.DisableTorchFunction():
            self.home.take_in(tensors)

    def step(self, optimizer: Any, original: Callable[[], Any], *, is_plain: bool) -> Any:
        """Let an optimizer step."""
        if self.engine is not None:
            return self.engine.step(optimizer, original, is_plain=is_plain)
        with fast(optimizer, self.device.type):
            return original()

    def later(self, tensor: Any) -> Any:
        """A number that nothing in the loop depends on; at once where that costs nothing."""
        if self.engine is None or not isinstance(tensor, Tensor):
            return tensor.item()
        return self.engine.later(tensor)

    def cut(self, rows: _resident.Rows, index: Tensor) -> Any:
        """A batch; on a tape it is a call like those of the script."""
        if self.engine is None:
            return rows(index)
        return self.engine.rows(rows, index)

    def placed(self, tensors: tuple[Tensor, ...]) -> _resident.Rows | None:
        """Data, on the device; None where they take too much of its memory."""
        known = self._data.get(tensors[0])
        now = [(id(tensor), tensor._version) for tensor in tensors]
        if known is not None and known[0] == now:
            rows: _resident.Rows = known[1]
            return rows
        if self.device.type == "cuda":
            missing = sum(tensor.nbytes for tensor in tensors)
            if missing > SHARE_OF_MEMORY * torch.cuda.mem_get_info(self.device)[0]:
                return None
        rows = _resident.Rows([tensor.detach().to(self.device) for tensor in tensors])
        self._data[tensors[0]] = (now, rows)
        return rows
