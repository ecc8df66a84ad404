"""Player: a tape that is made ready to be played, over and over, in the same memory.

slots    the batch of now is copied in ──┐
kept     parameters, buffers, state ─────┼──► captured graph ──► lasting: loss, predictions
rates    learning rates on the device ───┘
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from operator import attrgetter, is_
from typing import Any, Protocol

import torch
from torch import Tensor

from reparto.runtime.accelerate._calls import FACTORIES, SET_GRAD
from reparto.runtime.accelerate._found import is_foreign
from reparto.runtime.accelerate._home import Home
from reparto.runtime.accelerate._later import WAITING
from reparto.runtime.accelerate._run import make_calls, refs_in
from reparto.runtime.accelerate._step_calls import StepOf, ZeroOf
from reparto.runtime.accelerate._steps import rate_tensors
from reparto.runtime.accelerate._tape import Call, version_of
from reparto.runtime.accelerate._taped import NotTapedError, Tape
from reparto.runtime.accelerate._window import Window

_gradient = attrgetter("grad")


class Player(Protocol):
    """A tape, ready to be played.

    Attributes:
        tape: What it plays, as it was recorded.
        played: The same, as it is played: with less precision perhaps, or compiled.
        device: Where.
        slots: What comes anew is like these, and is copied there, by number.
        windows: Batches that need no copy as long as they come in order, by number.
        lasting: What the script still holds when the step is over, by number.
        history: A row of the numbers that the script wants later, for each step.
        rates: Learning rates on the device, a list for each optimizer; None where they are fixed.
    """

    tape: Tape
    played: Tape
    device: torch.device
    slots: dict[int, Tensor]
    windows: dict[int, Window]
    lasting: dict[int, Tensor]
    history: Tensor
    rates: list[list[Tensor] | None]

    def rewind(self) -> None:
        """Begin with the first row of the history again."""

    def rest(self) -> None:
        """Be fit to be launched though no batch has come."""

    def unfit(self) -> str:
        """Why it would not compute what the script asks for now; empty if it does."""

    def launch(self) -> None:
        """Compute all of the step."""


class Stage:
    """What players have in common: memory for what comes in and goes out.

    Args:
        tape: What is to be played.
        device: Where.
        home: Knows where tensors belong.
    """

    def __init__(self, tape: Tape, device: torch.device, home: Home) -> None:
        self.tape, self.played, self.device, self._home = tape, tape, device, home
        self.slots = {
            index: torch.zeros(look.shape, dtype=look.dtype, device=device)
            for index, look in tape.fed.items()
        }
        self.rates = [rate_tensors(ref(), device) for ref in tape.optimizers]
        self.lasting: dict[int, Tensor] = {}
        self._copied: list[list[Any]] = []
        self._given: list[Any] = [None] * (1 + max([*tape.kept, *tape.fed], default=-1))
        for index, tensor in tape.kept.items():
            self._given[index] = copy = home.on_device(tensor)
            if copy is not tensor:
                if index in tape.changed:
                    raise NotTapedError("adds up in a tensor of the CPU")
                self._copied.append([tensor, copy, version_of(tensor)])
        for index, slot in self.slots.items():
            self._given[index] = slot
        self._calls = [self._on_device(call) for call in tape.calls]
        size = (WAITING, len(tape.numbers))
        kinds = {tape.looks[index].dtype for index in tape.numbers}
        dtype = kinds.pop() if len(kinds) == 1 else torch.float64
        self.history = torch.zeros(size, dtype=dtype, device=device)
        self._count()

    def _count(self) -> None:
        """Counters that each launch moves on: the row of the history, places of batches."""
        advances = self.tape.advances
        sizes = [1, *(len(index) for _, index in advances.values())]
        steps = [1, *(advance for advance, _ in advances.values())]
        self._steps = torch.tensor(steps).repeat_interleave(torch.tensor(sizes)).to(self.device)
        self._counters = torch.zeros_like(self._steps)
        self._row, *places = self._counters.split(sizes)
        self.windows = {
            number: Window(index, memory, advance)
            for (number, (advance, index)), memory in zip(advances.items(), places, strict=True)
        }

    def rewind(self) -> None:
        """Begin with the first row of the history again."""
        self._row.zero_()

    def rest(self) -> None:
        """Be fit to be launched though no batch has come."""
        for window in self.windows.values():
            window.rest()

    def unfit(self) -> str:
        """Why it would not compute what the script asks for now; empty if it does."""
        return ""

    def refresh(self) -> None:
        """Copy tensors of the CPU again that the script has changed since."""
        for one in self._copied:
            tensor, copy, version = one
            if version_of(tensor) != version or is_foreign(tensor):
                copy.copy_(tensor)
                one[2] = version_of(tensor)

    def _remember(self, made: list[Any]) -> None:
        """Write down what the script wants later."""
        if self.tape.numbers or self.windows:
            self._write(made)
            self._counters.add_(self._steps)

    def _write(self, made: list[Any]) -> None:
        if not self.tape.numbers:
            return
        dtype = self.history.dtype
        numbers = [made[index].detach().reshape(1).to(dtype) for index in self.tape.numbers]
        row = numbers[0] if len(numbers) == 1 else torch.cat(numbers)
        self.history.index_copy_(0, self._row, row.reshape(1, -1))

    def _on_device(self, call: Call) -> Call:
        """What is made of numbers alone is made on the device."""
        if self.device.type == "cpu" or call.func not in FACTORIES:
            return call
        asked = call.kwargs.get("device")
        if refs_in(call.args) or (asked is not None and torch.device(asked).type != "cpu"):
            return call
        kwargs = {**call.kwargs, "device": self.device}
        return Call(call.func, call.args, kwargs, call.modes, call.result, call.place)

    def play(self) -> list[Any]:
        """Make all calls."""
        steps = [call.func for call in self.tape.calls if isinstance(call.func, StepOf)]
        for step, rates in zip(steps, self.rates, strict=True):
            step.rates = rates
        for index, window in self.windows.items():
            self._given[index] = window.rows()
        num_made, kind = len(self.tape.looks), self.device.type
        return make_calls(self._calls, self._given, num_made, kind, self._home.run)


class CapturedPlayer(Stage):
    """Plays a tape in the memory in which it was captured, without Python.

    Nothing that Python does on the way happens again, such as attaching gradients to parameters:
    that is done here.

    Args:
        tape: What is to be played.
        device: Where.
        home: Knows where tensors belong.
    """

    def __init__(self, tape: Tape, device: torch.device, home: Home) -> None:
        super().__init__(tape, device, home)
        leaves = [tensor for tensor in tape.known() if tensor.is_leaf]
        before = [tensor.grad for tensor in leaves]
        after: list[Any] = []

        def body() -> None:
            self._body()
            after.extend(tensor.grad for tensor in leaves)

        try:
            self._capture(body)
        finally:
            for tensor, grad in zip(leaves, before, strict=True):
                tensor.grad = grad
        # The graph reads gradients that were there before, and writes those that it leaves.
        self._before = before
        self._leaves, self._grads = leaves, after
        self._present = [grad for grad in after if grad is not None]
        self._holders: list[int] = []
        self._zeroes = any(_zeroes(call) for call in tape.calls)
        pairs = zip(before, after, strict=True)
        if not self._zeroes and any(one is not two for one, two in pairs):
            raise NotTapedError("gradients come into other memory in each step")

    def unfit(self) -> str:
        """Why it would not compute what the script asks for now; empty if it does."""
        if self._zeroes:
            return ""
        pairs = zip(self._leaves, self._grads, strict=True)
        if any(grad is None and leaf.grad is not None for leaf, grad in pairs):
            return "there are gradients of other parameters than before"
        return ""

    def _body(self) -> None:
        made = self.play()
        with torch.no_grad():
            for index in self.tape.lasting:  # in bf16 it has another type than the script's
                tensor = made[index]
                assert tensor is not None
                look = self.tape.looks[index]
                tensor = tensor.detach().to(look.dtype)
                if look.is_contiguous and tensor.stride() != look.stride:
                    tensor = tensor.contiguous()
                self.lasting[index] = made[index] = tensor
            self._remember(made)

    def launch(self) -> None:
        """Compute all of the step; may return before it is done."""
        if self._copied:
            self.refresh()
        if not all(map(is_, map(_gradient, self._leaves), self._grads)):
            self._attach()
        if list(map(sys.getrefcount, self._present)) != self._holders:
            if self._holders:
                self._leave_to_script()
            self._holders = list(map(sys.getrefcount, self._present))
        self._replay()

    def _leave_to_script(self) -> None:
        """The script keeps gradients of a step before: it gets them in memory of their own."""
        for index, (leaf, grad) in enumerate(zip(self._leaves, self._grads, strict=True)):
            if grad is None or grad is self._before[index]:  # in place, for the script too
                continue
            again = grad.detach()
            if leaf.grad is grad:
                leaf.grad = again
            grad.data = grad.detach().clone()
            self._grads[index] = again
        self._present = [grad for grad in self._grads if grad is not None]

    def _attach(self) -> None:
        """Begin with the gradients that the script sees, and leave it those that come."""
        for leaf, grad in zip(self._leaves, self._grads, strict=True):
            now = leaf.grad
            if now is grad:
                continue
            if grad is None:  # zeroed, and not computed
                leaf.grad = None
            elif now is None:
                grad.detach().zero_()
                leaf.grad = grad
            else:
                grad.detach().copy_(now.detach())
                leaf.grad = grad

    def _capture(self, body: Callable[[], None]) -> None:
        """Capture what a function computes."""
        raise NotImplementedError

    def _replay(self) -> None:
        """Compute it again."""
        raise NotImplementedError


def _zeroes(call: Call) -> bool:
    return isinstance(call.func, ZeroOf) or call.func == SET_GRAD


class GraphPlayer(CapturedPlayer):
    """Plays a tape as a captured graph of CUDA.

    Args:
        tape: What is to be played.
        device: The GPU.
        home: Knows where tensors belong.
        stream: On which all of the training runs.
    """

    def __init__(
        self,
        tape: Tape,
        device: torch.device,
        home: Home,
        stream: Any,
    ) -> None:
        self._graph, self._stream = torch.cuda.CUDAGraph(), stream
        super().__init__(tape, device, home)

    def _capture(self, body: Callable[[], None]) -> None:
        try:
            with torch.cuda.graph(self._graph, stream=self._stream):
                body()
        except BaseException:
            self._end_for_generators()
            raise

    def _end_for_generators(self) -> None:
        """Whoever draws random numbers on the GPU has not heard of the end of a broken capture."""
        with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=self._stream):
            torch.zeros((), device=self.device)

    def _replay(self) -> None:
        self._graph.replay()


class RepeatPlayer(Stage):
    """Plays a tape by making its calls: what a graph does, without a GPU.

    Args:
        tape: What is to be played.
        device: Where.
        home: Knows where tensors belong.
    """

    def __init__(self, tape: Tape, device: torch.device, home: Home) -> None:
        super().__init__(tape, device, home)
        for index in tape.lasting:
            look = tape.looks[index]
            self.lasting[index] = torch.zeros(look.shape, dtype=look.dtype, device=device)

    def launch(self) -> None:
        """Compute all of the step."""
        made = self.play()
        with torch.no_grad():
            for index, memory in self.lasting.items():
                tensor = made[index]
                assert tensor is not None
                memory.copy_(tensor)
            self._remember(made)
