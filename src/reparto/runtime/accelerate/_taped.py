"""What two steps that were the same have in common, if it can be played: a tape."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._calls import BACKWARD, DATA, FACTORIES, REFUSED
from reparto.runtime.accelerate._graph import open_graph
from reparto.runtime.accelerate._resident import Rows
from reparto.runtime.accelerate._run import refs_in
from reparto.runtime.accelerate._step_calls import StepOf
from reparto.runtime.accelerate._steps import is_capturable
from reparto.runtime.accelerate._tape import Call, Given, Look, Made, Recording, memory_of
from reparto.runtime.accelerate._window import advance_of


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
        advances: By how many rows of the order of their pass batches go on from step to step, by
            the number of their indices; with an index as an example.
    """

    calls: list[Call]
    looks: list[Look]
    kept: dict[int, Tensor]
    fed: dict[int, Look]
    lasting: set[int]
    numbers: list[int] = field(default_factory=list)
    optimizers: list[weakref.ref[Any]] = field(default_factory=list)
    changed: dict[int, int] = field(default_factory=dict)
    advances: dict[int, tuple[int, Tensor]] = field(default_factory=dict)

    def known(self) -> list[Tensor]:
        """Kept tensors that the script may know: all but data that were placed here."""
        placed = [call.func.tensors for call in self.calls if isinstance(call.func, Rows)]
        data = {id(tensor) for tensors in placed for tensor in tensors}
        return [tensor for tensor in self.kept.values() if id(tensor) not in data]


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
    memories = {memory_of(kept[index]) for index in changed}
    if any(memory_of(second.given[index]) in memories for index in fed):
        raise NotTapedError("is handed a part of a tensor that it changes")
    advances = _advances(first, second, fed)
    return Tape(
        calls=second.calls,
        looks=second.looks,
        kept=kept,
        fed=fed,
        lasting=lasting,
        numbers=sorted(numbers),
        optimizers=refs,
        changed=changed,
        advances=advances,
    )


def _advances(
    first: Recording, second: Recording, fed: dict[int, Look]
) -> dict[int, tuple[int, Tensor]]:
    found: dict[int, tuple[int, Tensor]] = {}
    for call in second.calls:
        if not isinstance(call.func, Rows) or type(call.args[0]) is not Given:
            continue
        index = call.args[0].index
        if index in fed:
            advance = advance_of(first.given[index], second.given[index])
            if advance:
                found[index] = advance, second.given[index]
    return found


def _refuse(recording: Recording, fed: dict[int, Look]) -> None:
    changed = recording.changed.keys() & fed.keys()
    for call in recording.calls:
        if call.func in REFUSED:
            raise NotTapedError(f"{REFUSED[call.func]} ({call.place})")
        goes_back = call.func in BACKWARD and call.func is not torch.autograd.grad
        if goes_back and call.kwargs.get("create_graph"):
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
