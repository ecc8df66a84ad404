"""Player: a tape that is made ready to be played, over and over, in the same memory.

slots    the batch of now is copied in ──┐
kept     parameters, buffers, state ─────┼──► captured graph ──► lasting: loss, predictions
rates    learning rates on the device ───┘
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from reparto.runtime.accelerate._calls import BACKWARD, DATA, FACTORIES, REFUSED, SET_GRAD
from reparto.runtime.accelerate._graph import open_graph
from reparto.runtime.accelerate._home import Home
from reparto.runtime.accelerate._later import WAITING
from reparto.runtime.accelerate._run import make_calls, refs_in
from reparto.runtime.accelerate._steps import fast, is_capturable, rate_tensors
from reparto.runtime.accelerate._tape import Call, Given, Look, Made, Recording, version_of


class StepOf:
    """The step of an optimizer, as a call of a tape; without what torch and we hang on it."""

    def __init__(self, optimizer: Any, kind: str) -> None:
        self.ref, self.kind = weakref.ref(optimizer), kind
        self.rates: list[Tensor] | None = None
        self.__name__ = "step"

    def __call__(self) -> None:
        optimizer: Any = self.ref()
        step = type(optimizer).step
        while getattr(step, "hooked", False) or hasattr(step, "_reparto"):
            step = step.__wrapped__
        with fast(optimizer, self.kind, self.rates):
            step(optimizer)


class ZeroOf:
    """The zeroing of an optimizer's or a module's gradients, as a call of a tape."""

    def __init__(self, owner: Any, original: Callable[..., Any]) -> None:
        self.ref, self.original = weakref.ref(owner), original
        self.__name__ = "zero_grad"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.original(self.ref(), *args, **kwargs)


class NotTapedError(Exception):
    """A step cannot be put on a tape; the message says why."""


@dataclass
class Tape:
    """Two steps that were the same, and what they have in common.

    Attributes:
        calls: In order.
        looks: What each tensor that is made is like.
        kept: Tensors that are there from step to step, by their number.
        fed: What those are like that come anew, by their number.
        lasting: Which tensors the script still holds when the step is over.
        numbers: Which of these are single numbers, which it may want later.
        changed: Which of those that are kept the step changes in place, and from which call on.
        optimizers: Whose steps are on it; held weakly, since models come and go.
    """

    calls: list[Call]
    looks: list[Look]
    kept: dict[int, Tensor]
    fed: dict[int, Look]
    lasting: set[int]
    numbers: list[int] = field(default_factory=list)
    optimizers: list[weakref.ref[Any]] = field(default_factory=list)
    changed: dict[int, int] = field(default_factory=dict)


def taped(first: Recording, second: Recording, lasting: set[int]) -> Tape:
    """Put on a tape what two steps have in common.

    Args:
        first: A step.
        second: A later one, with the same calls.
        lasting: Which tensors of the second outlive it.

    Raises:
        NotTapedError: If that cannot be.
    """
    for recording in (first, second):
        if recording.trouble:
            raise NotTapedError(recording.trouble)
    kept: dict[int, Tensor] = {}
    fed: dict[int, Look] = {}
    for index, (one, two) in enumerate(zip(first.given, second.given, strict=True)):
        if one is two:
            kept[index] = two
            continue
        fed[index] = look = Look.of(two)
        before = Look.of(one)
        if (before.shape, before.dtype) != (look.shape, look.dtype):
            raise NotTapedError("batches have different shapes")
        if look.requires_grad or before.requires_grad:
            raise NotTapedError("a step goes on with what an earlier step computed")
    for recording in (first, second):
        _refuse(recording, fed)
    _refuse_cpu(second)
    if why := open_graph(second, lasting):
        raise NotTapedError(why)
    extra = len(second.given)
    for call in second.calls:
        for tensor in getattr(call.func, "tensors", ()):  # of a module, of a loader's data
            if not any(tensor is one for one in kept.values()):
                kept[extra] = tensor
                extra += 1
    _refuse_hooks(kept.values())
    optimizers: list[Any] = [
        call.func.ref() for call in second.calls if isinstance(call.func, StepOf)
    ]
    for optimizer in optimizers:
        if why := is_capturable(optimizer):
            raise NotTapedError(why)
    numbers = [
        index
        for index in lasting - first.altered - second.altered
        if second.looks[index].shape.numel() == 1 and not second.looks[index].dtype.is_complex
    ]
    refs = [weakref.ref(optimizer) for optimizer in optimizers]
    changed = {index: at for index, at in second.changed.items() if index in kept}
    return Tape(second.calls, second.looks, kept, fed, lasting, sorted(numbers), refs, changed)


def _refuse(recording: Recording, fed: dict[int, Look]) -> None:
    changed = recording.changed.keys() & fed.keys()
    for call in recording.calls:
        if call.func in REFUSED:
            raise NotTapedError(f"{REFUSED[call.func]} ({call.place})")
        attaches = call.func in BACKWARD and call.func is not torch.autograd.grad
        if attaches and call.kwargs.get("create_graph"):
            raise NotTapedError(f"computes gradients of gradients ({call.place})")
        indices = {ref.index for ref in refs_in((call.args, call.kwargs)) if type(ref) is Given}
        if call.func == DATA and indices & fed.keys():
            made = {ref.index for ref in refs_in(call.result) if type(ref) is Made}
            changed = changed | indices if made & recording.altered else changed
        if indices & changed:
            raise NotTapedError(f"changes its batch in place ({call.place})")


def _refuse_hooks(kept: Iterable[Tensor]) -> None:
    for tensor in kept:
        arriving: Any = getattr(tensor, "_post_accumulate_grad_hooks", None) or {}
        own = [hook for hook in arriving.values() if not hasattr(hook, "_reparto")]
        if own or (tensor.is_leaf and tensor._backward_hooks):
            raise NotTapedError("a hook hangs on the gradient of a parameter")


def _refuse_cpu(recording: Recording) -> None:
    """A step of the GPU has no results on the CPU, but for what is made of numbers alone."""
    kinds = {look.device for look in recording.looks}
    if len(kinds) < 2:
        return
    seen: set[int] = set()
    for call in recording.calls:
        refs = [ref.index for ref in refs_in(call.result) if type(ref) is Made]
        fresh = [index for index in refs if index not in seen]
        seen.update(fresh)
        is_made = call.func in FACTORIES and not refs_in((call.args, call.kwargs))
        if not is_made and any(recording.looks[index].device == "cpu" for index in fresh):
            name = str(getattr(call.func, "__name__", "")).strip("_")
            raise NotTapedError(f"computes on the CPU: {name} ({call.place})")


class Player(Protocol):
    """A tape, ready to be played.

    Attributes:
        tape: What it plays.
        device: Where.
        slots: Where what comes anew is copied to, by number.
        lasting: What the script still holds when the step is over, by number.
        history: A row of the numbers that the script wants later, for each step.
        rates: Learning rates on the device, a list for each optimizer; None where they are fixed.
    """

    tape: Tape
    device: torch.device
    slots: dict[int, Tensor]
    lasting: dict[int, Tensor]
    history: Tensor
    rates: list[list[Tensor] | None]

    def rewind(self) -> None:
        """Begin with the first row of the history again."""

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
        self.tape, self.device, self._home = tape, device, home
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
        self._row = torch.zeros(1, dtype=torch.int64, device=device)

    def rewind(self) -> None:
        """Begin with the first row of the history again."""
        self._row.zero_()

    def unfit(self) -> str:
        """Why it would not compute what the script asks for now; empty if it does."""
        return ""

    def refresh(self) -> None:
        """Copy tensors of the CPU again that the script has changed since."""
        for one in self._copied:
            tensor, copy, version = one
            if version_of(tensor) != version:
                copy.copy_(tensor)
                one[2] = version_of(tensor)

    def _remember(self, made: list[Any]) -> None:
        """Write down what the script wants later."""
        if not self.tape.numbers:
            return
        dtype = self.history.dtype
        numbers = [made[index].detach().reshape(1).to(dtype) for index in self.tape.numbers]
        row = numbers[0] if len(numbers) == 1 else torch.cat(numbers)
        self.history.index_copy_(0, self._row, row.reshape(1, -1))
        self._row.add_(1)

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
        leaves = [tensor for tensor in tape.kept.values() if tensor.is_leaf]
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
        self._grads = list(zip(leaves, after, strict=True))
        self._counts: list[int] = []
        self._zeroes = any(_zeroes(call) for call in tape.calls)
        pairs = zip(before, after, strict=True)
        if not self._zeroes and any(one is not two for one, two in pairs):
            raise NotTapedError("gradients come into other memory in each step")

    def unfit(self) -> str:
        """Why it would not compute what the script asks for now; empty if it does."""
        if not self._zeroes and any(g is None and p.grad is not None for p, g in self._grads):
            return "there are gradients of other parameters than before"
        return ""

    def _body(self) -> None:
        made = self.play()
        with torch.no_grad():
            for index in self.tape.lasting:  # in bf16 it has another type than the script's
                tensor = made[index]
                assert tensor is not None
                look = self.tape.looks[index]
                self.lasting[index] = made[index] = tensor.detach().to(look.dtype)
            self._remember(made)

    def launch(self) -> None:
        """Compute all of the step; may return before it is done."""
        self.refresh()
        self._attach()
        if self._counts and self._holders() != self._counts:
            self._leave_to_script()
        self._counts = self._counts or self._holders()
        self._replay()

    def _holders(self) -> list[int]:
        return [sys.getrefcount(grad) for _, grad in self._grads if grad is not None]

    def _leave_to_script(self) -> None:
        """The script keeps gradients of a step before: it gets them in memory of their own."""
        for index, (param, grad) in enumerate(self._grads):
            if grad is None or grad is self._before[index]:  # in place, for the script too
                continue
            again = grad.detach()
            if param.grad is grad:
                param.grad = again
            grad.data = grad.detach().clone()
            self._grads[index] = param, again
        self._counts = []

    def _attach(self) -> None:
        """Begin with the gradients that the script sees, and leave it those that come."""
        for param, grad in self._grads:
            now = param.grad
            if now is grad:
                continue
            if grad is None:  # zeroed, and not computed
                param.grad = None
            elif now is None:
                grad.detach().zero_()
                param.grad = grad
            else:
                grad.detach().copy_(now.detach())
                param.grad = grad

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
        with torch.cuda.graph(self._graph, stream=self._stream):
            body()

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


def trimmed(recording: Recording, lasting: set[int]) -> tuple[Recording, set[int]]:
    """A step without what came before it: what was still done with the step before.

    It begins with the zeroing of gradients, or with the first call of which the gradients depend.
    """
    calls = recording.calls
    maker: dict[int, int] = {}
    for position, call in enumerate(calls):
        for ref in refs_in(call.result):
            if type(ref) is Made:
                maker.setdefault(ref.index, position)  # a call may return what it was given
    begin = _beginning(calls, maker)
    while True:
        used = [
            maker[ref.index]
            for call in calls[begin:]
            for ref in refs_in((call.args, call.kwargs))
            if type(ref) is Made
        ]
        earlier = min([begin, *used])
        if earlier == begin:
            break
        begin = earlier
    if begin == 0:
        return recording, lasting
    return _renumbered(recording, begin, lasting)


def _beginning(calls: list[Call], maker: dict[int, int]) -> int:
    wanted = {
        position
        for position, call in enumerate(calls)
        if call.func in BACKWARD or isinstance(call.func, (ZeroOf, StepOf))
    }
    todo = [position for position in wanted if calls[position].func in BACKWARD]
    while todo:
        call = calls[todo.pop()]
        for ref in refs_in((call.args, call.kwargs)):
            if type(ref) is Made and maker[ref.index] not in wanted:
                wanted.add(maker[ref.index])
                todo.append(maker[ref.index])
    return min(wanted, default=0)


def _renumbered(recording: Recording, begin: int, lasting: set[int]) -> tuple[Recording, set[int]]:
    from reparto.runtime.accelerate._tape import Rebuilt

    fresh = Recording(trouble=recording.trouble)
    changed = recording.changed_since(begin)
    made: dict[int, Made] = {}
    given: dict[int, Given] = {}

    def again(noted: Any) -> Any:
        kind = type(noted)
        if kind is Made:
            if noted.index not in made:
                made[noted.index] = Made(len(fresh.looks))
                fresh.looks.append(recording.looks[noted.index])
            return made[noted.index]
        if kind is Given:
            if noted.index not in given:
                given[noted.index] = Given(len(fresh.given))
                fresh.given.append(recording.given[noted.index])
            return given[noted.index]
        if kind is tuple or kind is list:
            return kind(map(again, noted))
        if kind is dict:
            return {key: again(one) for key, one in noted.items()}
        if kind is Rebuilt:
            return Rebuilt(noted.like, tuple(map(again, noted.parts)))
        return noted

    for call in recording.calls[begin:]:
        parts = (again(call.args), again(call.kwargs))
        fresh.calls.append(Call(call.func, *parts, call.modes, again(call.result), call.place))
    fresh.changed = {given[i].index: at - begin for i, at in changed.items() if i in given}
    fresh.altered = {made[index].index for index in recording.altered if index in made}
    return fresh, {made[index].index for index in lasting if index in made}
