"""Follower: holds a running step against a tape, call by call.

Answers calls with stand-ins. Two kinds: what the script lets go of before the step ends gets one
tensor that is used in every step; what it keeps (loss, predictions) gets a fresh one each time,
which shares the memory into which the graph will write.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._found import rebuilt
from reparto.runtime.accelerate._later import Later, Ring
from reparto.runtime.accelerate._player import Player, settings
from reparto.runtime.accelerate._run import make_calls
from reparto.runtime.accelerate._steps import rates_of
from reparto.runtime.accelerate._tape import Call, Given, Made, Rebuilt, same_value

#: A call that is not the one on the tape.
MISS: Any = object()

# What an argument must be.
_MADE, _KEPT, _FED, _VALUE, _PARTS = range(5)
# What a call is answered with.
_NOTHING, _STAND_IN, _FRESH, _SAME, _WHOLE = range(5)


class Expected:
    """A call of the tape, laid out so that it is quickly compared."""

    __slots__ = ("answer", "args", "cast", "func", "grad", "kind", "kwargs", "num_args", "what")

    def __init__(self, call: Call, player: Player, seen: set[int]) -> None:
        self.func = call.func
        self.grad, self.cast = call.modes[0], call.modes[1:] if call.modes[1] else False
        self.args = tuple(_expected(noted, player) for noted in call.args)
        self.kwargs = {name: _expected(noted, player) for name, noted in call.kwargs.items()}
        self.num_args = len(self.args)
        self.kind, self.what = _answer(call.result, player, seen)


def _expected(noted: Any, player: Player) -> tuple[int, Any]:
    kind = type(noted)
    if kind is Made:
        return _MADE, noted.index
    if kind is Given:
        kept = player.tape.kept.get(noted.index)
        return (_KEPT, kept) if kept is not None else (_FED, noted.index)
    if kind in (tuple, list, dict, Rebuilt):
        parts = noted.parts if kind is Rebuilt else noted.values() if kind is dict else noted
        return _PARTS, (noted, [_expected(one, player) for one in parts])
    return _VALUE, noted


def _answer(noted: Any, player: Player, seen: set[int]) -> tuple[int, Any]:
    """How a call is answered; `seen` are tensors that earlier calls have made."""
    kind = type(noted)
    if kind is Made:
        if noted.index in seen:
            return _SAME, noted.index
        seen.add(noted.index)
        return (_FRESH if noted.index in player.lasting else _STAND_IN), noted.index
    if kind is Given:
        return _WHOLE, noted
    if kind in (tuple, list, dict, Rebuilt):
        parts = noted.parts if kind is Rebuilt else noted.values() if kind is dict else noted
        return _WHOLE, (noted, [_answer(one, player, seen) for one in parts])
    return _NOTHING, noted


class Follower:
    """Follows one tape.

    Call order: ``is_first`` tells whether a step may be this one; then ``follow`` for each call
    until it misses or `is_at_end`; then ``launch``, or ``give_up`` after a miss.

    Args:
        player: The tape, ready to be played.
        ring: Where numbers are kept that the script wants later.
        source: What of a fed tensor is copied: itself, or the same data on the device.
    """

    def __init__(self, player: Player, ring: Ring, source: Callable[[Tensor], Tensor]) -> None:
        self.player, self.tape, self._ring, self._source = player, player.tape, ring, source
        self._device = next(iter(player.slots.values())).device if player.slots else None
        seen: set[int] = set()
        self._calls = [Expected(call, player, seen) for call in self.tape.calls]
        self._end = len(self._calls)
        self._kind = player.device.type  # type: ignore[attr-defined]
        self._stand_ins = _stand_ins(player)
        self._current: list[Any] = list(self._stand_ins)
        self._lasting = sorted(player.lasting)
        self._dropped = [t for i, t in enumerate(self._stand_ins) if i not in player.lasting]
        self.ids = {id(tensor) for tensor in self._dropped}
        self.fed: dict[int, Tensor] = {}
        self.position = 0
        self._shown: list[weakref.ref[Tensor]] = []
        self._laters: list[tuple[int, Later]] = []
        self._kept = list(self.tape.kept.values())
        self._pointers = list(map(Tensor.data_ptr, self._kept))
        self._flags = [tensor.requires_grad for tensor in self._kept]
        self._settings = settings(self.tape)
        self._rates = [rates_of(optimizer) for optimizer in self.tape.optimizers]
        self._holders: list[int] = []
        self._holders = list(map(sys.getrefcount, self._dropped))
        self.misses = 0

    @property
    def is_at_end(self) -> bool:
        """Whether all calls but the last, the optimizer's step, have been made."""
        return self.position == self._end - 1

    def is_first(self, func: Any) -> bool:
        """Whether a step that begins so may be this one."""
        first = self._calls[0].func
        return func is first or bool(func == first)

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Answer a call; `MISS` if it is another one. Called with torch functions disabled."""
        expected = self._calls[self.position]
        if func is not expected.func and func != expected.func:
            return MISS
        if len(args) != expected.num_args or torch.is_grad_enabled() is not expected.grad:
            return MISS
        is_cast = torch.is_autocast_enabled(self._kind)
        if is_cast is not bool(expected.cast):
            return MISS
        if is_cast and expected.cast[1] != torch.get_autocast_dtype(self._kind):
            return MISS
        for want, arg in zip(expected.args, args, strict=True):
            if not self._is_as(want, arg):
                return MISS
        if kwargs or expected.kwargs:
            if kwargs is None or kwargs.keys() != expected.kwargs.keys():
                return MISS
            for name, want in expected.kwargs.items():
                if not self._is_as(want, kwargs[name]):
                    return MISS
        self.position += 1
        return self._answered(expected.kind, expected.what)

    def _is_as(self, want: tuple[int, Any], arg: Any) -> bool:
        kind, what = want
        if kind == _MADE:
            return arg is self._current[what]
        if kind == _KEPT:
            return arg is what
        if kind == _VALUE:
            return arg is what or same_value(arg, what)
        if kind == _FED:
            return self._feed(what, arg)
        noted, parts = what
        if type(noted) is Rebuilt:
            noted = noted.like
        if type(arg) is not type(noted) or len(arg) != len(parts):
            return False
        if type(noted) is dict:
            if arg.keys() != noted.keys():
                return False
            arg = [arg[key] for key in noted]
        return all(map(self._is_as, parts, arg))

    def _feed(self, index: int, arg: Any) -> bool:
        now = self.fed.get(index)
        if now is not None:
            return arg is now
        if not isinstance(arg, Tensor) or id(arg) in self.ids:
            return False
        slot = self.player.slots[index]
        if arg.shape != slot.shape or arg.dtype is not slot.dtype or arg.requires_grad:
            return False
        slot.copy_(self._source(arg), non_blocking=True)
        self.fed[index] = arg
        return True

    def _answered(self, kind: int, what: Any) -> Any:
        if kind == _STAND_IN or kind == _SAME:
            return self._current[what]
        if kind == _NOTHING:
            return what
        if kind == _FRESH:
            return self._fresh(what)
        if type(what) is Given:
            kept = self.tape.kept.get(what.index)
            return kept if kept is not None else self.fed[what.index]
        noted, parts = what
        values = [self._answered(*part) for part in parts]
        if type(noted) is dict:
            return dict(zip(noted, values, strict=True))
        if type(noted) is Rebuilt:
            return rebuilt(noted.like, values)
        return type(noted)(values)

    def _fresh(self, index: int) -> Tensor:
        tensor = self.player.lasting[index].detach()
        if self.tape.looks[index].requires_grad:
            tensor.requires_grad_()
        self._current[index] = tensor
        self.ids.add(id(tensor))
        return tensor

    def later(self, tensor: Tensor) -> Later | None:
        """A number of this step that the script wants when it is there; None if it is another."""
        for index in self._lasting:
            if self._current[index] is tensor:
                later = Later()
                self._laters.append((index, later))
                return later
        return None

    def what_changed(self) -> str:
        """Why the graph would not compute what the script asks for; empty if it does."""
        if list(map(sys.getrefcount, self._dropped)) != self._holders:
            return "the script keeps a tensor that it did not keep before"
        if list(map(Tensor.data_ptr, self._kept)) != self._pointers:
            return "the memory of parameters has been exchanged"
        if [tensor.requires_grad for tensor in self._kept] != self._flags:
            return "parameters were frozen or thawed"
        if settings(self.tape) != self._settings:
            return "settings of the optimizer were changed"
        for number, optimizer in enumerate(self.tape.optimizers):
            rates = rates_of(optimizer)
            if rates != self._rates[number]:
                tensors = self.player.rates[number]
                if tensors is None:
                    return "the learning rate was changed"
                for rate, tensor in zip(rates, tensors, strict=True):
                    tensor.fill_(rate)
                self._rates[number] = rates
        return ""

    def launch(self) -> dict[int, weakref.ref[Tensor]]:
        """Compute the step.

        Returns:
            The tensors that the script holds and that share the graph's memory, by their id.
        """
        for ref in self._shown:  # of the step before, and still held: it gets memory of its own
            own_memory(ref())
        self.player.launch()
        for index, later in self._laters:
            self._ring.put(self.player.lasting[index], later)
        self._shown = [weakref.ref(self._current[index]) for index in self._lasting]
        shown = {id(self._current[i]): weakref.ref(self._current[i]) for i in self._lasting}
        self._rewind()
        self.misses = 0
        return shown

    def give_up(self) -> list[tuple[Tensor, Tensor]]:
        """Compute what was put off so far in the ordinary way.

        Returns:
            Pairs of a stand-in that the script may hold, and the tensor that it stands for.
        """
        given: list[Any] = [None] * (1 + max([*self.tape.kept, *self.tape.fed], default=-1))
        for index, tensor in (*self.tape.kept.items(), *self.fed.items()):
            given[index] = tensor
        calls = self.tape.calls[: self.position]
        made = make_calls(calls, given, len(self.tape.looks), self._kind)
        pairs = []
        for index, tensor in enumerate(made):
            if tensor is not None:
                pairs.append((self._current[index], tensor))
        for index, later in self._laters:
            self._ring.put(made[index], later)  # type: ignore[arg-type]
        # Stand-ins that the script may hold on to are not used again.
        for index, tensor in enumerate(made):
            if tensor is not None and index not in self.player.lasting:
                self._replace_stand_in(index)
        self._rewind()
        self.misses += 1
        return pairs

    def _replace_stand_in(self, index: int) -> None:
        old, fresh = self._stand_ins[index], _stand_in(self.player, index)
        self._stand_ins[index] = self._current[index] = fresh
        self._dropped = [fresh if one is old else one for one in self._dropped]
        self.ids.discard(id(old))
        self.ids.add(id(fresh))

    def _rewind(self) -> None:
        for index in self._lasting:
            current = self._current[index]
            if current is not None:
                self.ids.discard(id(current))
                self._current[index] = None
        self.position = 0
        self.fed.clear()
        self._laters = []

    def rested(self) -> None:
        """Count holders anew: nothing of the script is held now."""
        self._holders = list(map(sys.getrefcount, self._dropped))


def own_memory(tensor: Tensor | None) -> None:
    """Give a tensor that shares a graph's memory a copy of its own."""
    if tensor is not None:
        tensor.data = tensor.detach().clone()


def _stand_ins(player: Player) -> list[Any]:
    lasting = player.lasting
    return [
        None if index in lasting else _stand_in(player, index)
        for index in range(len(player.tape.looks))
    ]


def _stand_in(player: Player, index: int) -> Tensor:
    """A tensor of that look, without memory for its numbers."""
    look = player.tape.looks[index]
    one = torch.empty(1, dtype=look.dtype, device=player.device)  # type: ignore[attr-defined]
    stand_in = one.expand(look.shape) if look.shape else one.reshape(())
    stand_in = stand_in.detach()
    return stand_in.requires_grad_() if look.requires_grad else stand_in
