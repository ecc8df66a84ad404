"""Tape: what a training step asked of torch, and whether the next one asks the same.

While a step runs as it always did, `Recording` writes down each call. Two steps with the same
calls make a `Tape`. From then on the script's own Python still runs in every step, but a call
that is the one that the tape has at this place is not computed: it is answered with a tensor that
stands for the result, and all of them are computed together, by one captured graph, when the
optimizer steps:

    script          zero_grad   model(x)    loss(…)    backward   step
    recording       │ compute   │ compute   │ compute  │ compute  │ compute      twice
    following       │ same? ─── │ same? ─── │ same? ── │ same? ── │ same? ─ launch the graph

What a call is given decides whether it is the same: tensors that an earlier call of the step made
(`Made`), tensors that are there from step to step (`Kept`: parameters, buffers), tensors that
come anew in every step (`Fed`: the batch), and everything else, by its value.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._found import tensors_in


@dataclass(frozen=True, slots=True)
class Made:
    """The tensor that an earlier call of the step made."""

    index: int


@dataclass(frozen=True, slots=True)
class Given:
    """A tensor from outside of the step; a tape knows which are kept and which are fed."""

    index: int


@dataclass(slots=True)
class Call:
    """One call, with `Made` and `Given` in the place of tensors.

    Attributes:
        func: What was called.
        args: With what.
        kwargs: And by name.
        modes: Whether gradients and autocast were on.
        result: Of the same form as what it returned; what it made is `Made`.
        place: The line of the script, for people.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    modes: tuple[Any, ...]
    result: Any = None
    place: str = ""

    def same_as(self, other: Call) -> bool:
        """Whether the same was called with the same."""
        return (
            (self.func is other.func or self.func == other.func)
            and same_value(self.args, other.args)
            and same_value(self.kwargs, other.kwargs)
            and self.modes == other.modes
            and same_value(self.result, other.result)
        )


def same_value(one: Any, two: Any) -> bool:
    """Whether two values are the same, in type too: 1 is not 1.0, nor True."""
    if one is two:
        return True
    if type(one) is not type(two):
        return False
    if isinstance(one, (tuple, list)):
        return len(one) == len(two) and all(map(same_value, one, two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same_value(one[k], two[k]) for k in one)
    try:
        return bool(one == two)
    except Exception:  # whatever cannot be compared is another thing
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """A tuple of a kind of its own, such as what ``max(dim=0)`` returns."""

    like: Any
    parts: tuple[Any, ...]

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Rebuilt)
            and type(self.like) is type(other.like)
            and same_value(self.parts, other.parts)
        )

    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True)
class Look:
    """What a tensor is like, without its numbers."""

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    device: str
    stride: tuple[int, ...] = ()

    @classmethod
    def of(cls, tensor: Tensor) -> Look:
        """Look at a tensor."""
        stride = tensor.stride() if tensor.layout is torch.strided else ()
        look = (tensor.shape, tensor.dtype, tensor.requires_grad, tensor.device.type)
        return cls(*look, stride)

    @property
    def is_contiguous(self) -> bool:
        """Whether its numbers lie one behind the other, the last dimension first."""
        if len(self.stride) != len(self.shape):
            return False
        step = 1
        for length, stride in zip(reversed(self.shape), reversed(self.stride), strict=True):
            if length != 1 and stride != step:
                return False
            step *= length
        return True


def version_of(tensor: Tensor) -> int:
    """How often it was changed in place."""
    return 0 if tensor.is_inference() else tensor._version


def memory_of(tensor: Tensor) -> int:
    """A number of the memory that a tensor shares with all that were cut out of it."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (RuntimeError, NotImplementedError):  # a sparse one has none
        return id(tensor)


def is_plain(tensor: Tensor) -> bool:
    """Whether it is torch's own kind of tensor, and no wrapper of one."""
    return type(tensor) in _PLAIN and not _is_wrapped(tensor)


_PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)
_is_wrapped: Callable[[Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor


@dataclass
class Recording:
    """The calls of one step, as they are made.

    Attributes:
        calls: In order.
        given: Tensors from outside, in the order in which they were first used.
        looks: What each tensor that was made is like.
        trouble: Why this step cannot be put on a tape; empty where it can.
        seen: Uses of tensors from outside: at which call, which one, and its version then.
        changed: Which tensors from outside the step has changed in place, and from which call on.
        altered: Which tensors it has changed in place after it made them.
    """

    calls: list[Call] = field(default_factory=list)
    given: list[Tensor] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    trouble: str = ""
    seen: list[tuple[int, int, int]] = field(default_factory=list)
    changed: dict[int, int] = field(default_factory=dict)
    altered: set[int] = field(default_factory=set)
    _born: list[int] = field(default_factory=list)
    _refs: dict[int, Made | Given] = field(default_factory=dict)
    _held: list[Tensor] = field(default_factory=list)  # so that no number is given away twice
    _wanted: set[int] = field(default_factory=set)

    def add(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        modes: tuple[Any, ...],
        place: str,
    ) -> Call:
        """Write down a call before it is made: it may change what it is given."""
        call = Call(func, self._noted(args), self._noted(kwargs), modes, place=place)
        self.calls.append(call)
        return call

    def forget(self, num_given: int) -> None:
        """Take back the last call, before which there were so many tensors from outside."""
        self.calls.pop()
        for tensor in self.given[num_given:]:
            del self._refs[id(tensor)]
        del self.given[num_given:]
        self.seen = [use for use in self.seen if use[1] < num_given]

    def returned(self, call: Call, result: Any) -> None:
        """Write down what it returned."""
        for tensor in tensors_in(result):
            if id(tensor) not in self._refs:
                self._refs[id(tensor)] = Made(len(self.looks))
                self.looks.append(Look.of(tensor))
                self._held.append(tensor)
                self._born.append(version_of(tensor))
        call.result = self._noted(result)

    def has_made(self, value: Any) -> bool:
        """Whether a value has tensors that this step has made."""
        return any(type(self._refs.get(id(tensor))) is Made for tensor in tensors_in(value))

    def outlives(self, tensor: Tensor) -> None:
        """Somebody wants a number of this tensor when the step is over."""
        ref = self._refs.get(id(tensor))
        if type(ref) is Made:
            self._wanted.add(ref.index)

    def lasting(self) -> set[int]:
        """Which tensors the script still holds; the recording lets go of all that were made."""
        pairs = zip(map(version_of, self._held), self._born, strict=True)
        self.altered = {index for index, (now, then) in enumerate(pairs) if now != then}
        self.changed = self.changed_since(0)
        held = [weakref.ref(tensor) for tensor in self._held]
        self._held.clear()
        self._refs.clear()
        return {index for index, ref in enumerate(held) if ref() is not None} | self._wanted

    def has_changed(self, value: Any) -> bool:
        """Whether this step has changed tensors of a value, that come from outside, so far."""
        refs = [(self._refs.get(id(tensor)), tensor) for tensor in tensors_in(value)]
        now = {ref.index: version_of(tensor) for ref, tensor in refs if type(ref) is Given}
        return any(now.get(index, version) != version for _, index, version in self.seen)

    def changed_since(self, begin: int) -> dict[int, int]:
        """Which tensors from outside were changed, and when at the earliest, from this call on."""
        changed: dict[int, int] = {}
        seen: dict[int, tuple[int, int]] = {}
        last = [(len(self.calls), index, version_of(one)) for index, one in enumerate(self.given)]
        for position, index, version in (*self.seen, *last):
            before = seen.get(index)
            if before is not None and before[1] != version:
                changed.setdefault(index, before[0])
            if position >= begin:
                seen[index] = position, version
        return changed

    def _noted(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            ref = self._refs.get(id(value))
            if ref is None:
                ref = self._refs[id(value)] = Given(len(self.given))
                self.given.append(value)
                if not is_plain(value):
                    self.trouble = self.trouble or "works with a tensor of a kind of its own"
            if type(ref) is Given:
                self.seen.append((len(self.calls), ref.index, version_of(value)))
            return ref
        kind = type(value)
        if kind is tuple or kind is torch.Size:
            return tuple(map(self._noted, value))
        if kind is list:
            return [self._noted(one) for one in value]
        if kind is dict:
            return {key: self._noted(one) for key, one in value.items()}
        if isinstance(value, tuple):
            return Rebuilt(value, tuple(map(self._noted, value)))
        if hasattr(value, "__array_interface__") and getattr(value, "shape", None):
            self.trouble = self.trouble or "works with an array of numpy's"
        if tensors_in(value):
            self.trouble = self.trouble or f"hands tensors over in a {kind.__name__}"
        return value

    def first_difference(self, other: Recording) -> str:
        """Where two steps went apart, in words; empty where they did not."""
        for one, two in zip(self.calls, other.calls, strict=False):
            if not one.same_as(two):
                names = {_name(one.func), _name(two.func)}
                where = two.place or one.place
                if len(names) > 1:
                    return f"{' or '.join(sorted(names))}, from step to step ({where})"
                return f"{names.pop()} is given other values in each step ({where})"
        if len(self.calls) != len(other.calls):
            return "steps have different numbers of operations"
        return ""


def _name(func: Callable[..., Any]) -> str:
    return str(getattr(func, "__name__", func)).strip("_")
