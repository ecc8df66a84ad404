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
from reparto.runtime.accelerate._home import Home
from reparto.runtime.accelerate._later import History, Later, Ring
from reparto.runtime.accelerate._player import Player
from reparto.runtime.accelerate._run import make_calls
from reparto.runtime.accelerate._steps import Insides, rates_of, settings_of
from reparto.runtime.accelerate._tape import Call, Given, Made, Rebuilt, is_plain, same_value

#: A call that is not the one on the tape.
MISS: Any = object()

# What an argument must be.
_MADE, _KEPT, _FED, _VALUE, _PARTS = range(5)
# What a call is answered with.
_NOTHING, _STAND_IN, _FRESH, _SAME, _WHOLE = range(5)


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


def _comparison(call: Call, follower: Follower, seen: set[int]) -> Callable[..., Any]:
    """A function that compares a call with the expected one, and answers it or misses.

    It is written out for each call, so that a comparison is a few operations of Python: scripts
    of small models do little else.
    """
    player = follower.player
    names: dict[str, Any] = {
        "MISS": MISS,
        "FUNC": call.func,
        "NAMES": call.kwargs.keys(),
        "NUM_ARGS": len(call.args),
        "GRAD": call.modes[0],
        "CAST": call.modes[1],
        "DTYPE": call.modes[2],
        "KIND": follower.kind,
        "current": follower.current,
        "fed": follower.fed,
        "is_as": follower.is_as,
        "feed": follower.feed,
        "same_value": same_value,
        "is_grad": torch.is_grad_enabled,
        "is_cast": torch.is_autocast_enabled,
        "cast_dtype": torch.get_autocast_dtype,
    }
    lines = [
        "def compare(func, args, kwargs):",
        " if func is not FUNC and func != FUNC: return MISS",
        " if is_grad() is not GRAD or is_cast(KIND) is not CAST: return MISS",
        " if len(args) != NUM_ARGS: return MISS",
    ]
    if call.modes[1]:
        lines.append(" if cast_dtype(KIND) is not DTYPE: return MISS")
    if call.kwargs:
        lines.append(" if kwargs.keys() != NAMES: return MISS")
    else:
        lines.append(" if kwargs: return MISS")
    places = [(f"args[{index}]", noted) for index, noted in enumerate(call.args)]
    places += [(f"kwargs[{name!r}]", noted) for name, noted in call.kwargs.items()]
    for number, (place, noted) in enumerate(places):
        lines.append(f" a = {place}")
        kind, what = _expected(noted, player)
        names[f"W{number}"] = what
        if kind == _MADE:
            lines.append(f" if a is not current[{what}]: return MISS")
        elif kind == _KEPT:
            lines.append(f" if a is not W{number}: return MISS")
        elif kind == _FED:
            lines.append(f" if not feed({what}, a): return MISS")
        elif kind == _VALUE:
            lines.append(f" if a is not W{number} and not same_value(a, W{number}): return MISS")
        else:
            names[f"W{number}"] = (kind, what)
            lines.append(f" if not is_as(W{number}, a): return MISS")
    kind, what = _answer(call.result, player, seen)
    names["ANSWER"] = what
    if kind in (_STAND_IN, _SAME):
        lines.append(f" return current[{what}]")
    elif kind == _NOTHING:
        lines.append(" return ANSWER")
    elif kind == _FRESH:
        names["fresh"] = follower.fresh
        lines.append(f" return fresh({what})")
    else:
        names["answered"] = follower.answered
        lines.append(f" return answered({kind}, ANSWER)")
    exec("\n".join(lines), names)
    compare: Callable[..., Any] = names["compare"]
    return compare


class Follower:
    """Follows one tape.

    Call order: ``is_first`` tells whether a step may be this one; then ``follow`` for each call
    until it misses or `is_at_end`; then ``launch``, or ``give_up`` after a miss.

    Args:
        player: The tape, ready to be played.
        ring: Where numbers are kept that the script wants later.
        home: Knows where tensors belong.
    """

    def __init__(self, player: Player, ring: Ring, home: Home) -> None:
        self.player, self.tape, self._ring, self._home = player, player.tape, ring, home
        self.kind = player.device.type
        self._stand_ins = _stand_ins(player)
        self.current: list[Any] = list(self._stand_ins)
        self._lasting = sorted(player.lasting)
        self._dropped = [t for i, t in enumerate(self._stand_ins) if i not in player.lasting]
        self.ids = {id(tensor) for tensor in self._dropped}
        self.fed: dict[int, Tensor] = {}
        self.position = 0
        seen: set[int] = set()
        self._calls = [_comparison(call, self, seen) for call in self.tape.calls]
        self._end = len(self._calls)
        self._shown: list[weakref.ref[Tensor]] = []
        self._laters: list[tuple[int, Later]] = []
        self._kept = list(self.tape.kept.values())
        #: Tensors that are kept, and the call from which on the step changes them.
        self._changes = {id(self.tape.kept[i]): at for i, at in self.tape.changed.items()}
        for position, call in enumerate(self.tape.calls):
            for tensor in getattr(call.func, "tensors", ()):
                if not tensor.requires_grad:  # a buffer of a layer
                    self._changes.setdefault(id(tensor), position)
        self._pointers = list(map(Tensor.data_ptr, self._kept))
        self._flags = [tensor.requires_grad for tensor in self._kept]
        self._settings = [settings_of(ref()) for ref in self.tape.optimizers]
        self._groups = [_values(ref()) for ref in self.tape.optimizers]
        self._insides = [Insides(_of(ref)) for ref in self.tape.optimizers]
        self._holders: list[int] = []
        self._holders = list(map(sys.getrefcount, self._dropped))
        self.misses = 0
        numbers, looks = self.tape.numbers, self.tape.looks
        self._numbers = {index: column for column, index in enumerate(numbers)}
        self._history = History(
            player.history, [looks[index].dtype for index in numbers], player.rewind
        )

    @property
    def is_wanted(self) -> bool:
        """Whether the script still has the optimizers."""
        return all(ref() is not None for ref in self.tape.optimizers)

    @property
    def is_at_end(self) -> bool:
        """Whether all calls but the last, the optimizer's step, have been made."""
        return self.position == self._end - 1

    def computes(self, tensor: Tensor) -> bool:
        """Whether the calls that were put off make this tensor, or change it."""
        key = id(tensor)
        return key in self.ids or self._changes.get(key, self.position) < self.position

    @property
    def put_off(self) -> list[Call]:
        """The calls that were answered and not made."""
        return self.tape.calls[: self.position]

    def is_first(self, func: Any) -> bool:
        """Whether a step that begins so may be this one."""
        first = self.tape.calls[0].func
        return func is first or bool(func == first)

    def follow(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call; `MISS` if it is another one. Called with torch functions disabled."""
        answer = self._calls[self.position](func, args, kwargs)
        if answer is not MISS:
            self.position += 1
        return answer

    def is_as(self, want: tuple[int, Any], arg: Any) -> bool:
        kind, what = want
        if kind == _MADE:
            return arg is self.current[what]
        if kind == _KEPT:
            return arg is what
        if kind == _VALUE:
            return arg is what or same_value(arg, what)
        if kind == _FED:
            return self.feed(what, arg)
        noted, parts = what
        if type(noted) is Rebuilt:
            noted = noted.like
        if type(arg) is not type(noted) or len(arg) != len(parts):
            return False
        if type(noted) is dict:
            if arg.keys() != noted.keys():
                return False
            arg = [arg[key] for key in noted]
        return all(map(self.is_as, parts, arg))

    def feed(self, index: int, arg: Any) -> bool:
        now = self.fed.get(index)
        if now is not None:
            return arg is now
        if not isinstance(arg, Tensor) or id(arg) in self.ids:
            return False
        slot = self.player.slots[index]
        if arg.shape != slot.shape or arg.dtype is not slot.dtype or arg.requires_grad:
            return False
        if not is_plain(arg):
            return False
        slot.copy_(arg, non_blocking=True)
        self.fed[index] = arg
        return True

    def answered(self, kind: int, what: Any) -> Any:
        if kind in (_STAND_IN, _SAME):
            return self.current[what]
        if kind == _NOTHING:
            return what
        if kind == _FRESH:
            return self.fresh(what)
        if type(what) is Given:
            kept = self.tape.kept.get(what.index)
            return kept if kept is not None else self.fed[what.index]
        noted, parts = what
        values = [self.answered(*part) for part in parts]
        if type(noted) is dict:
            return dict(zip(noted, values, strict=True))
        if type(noted) is Rebuilt:
            return rebuilt(noted.like, values)
        return type(noted)(values)

    def fresh(self, index: int) -> Tensor:
        tensor = self.player.lasting[index].detach()
        if self.tape.looks[index].requires_grad:
            tensor.requires_grad_()
        self.current[index] = tensor
        self.ids.add(id(tensor))
        return tensor

    def later(self, tensor: Tensor) -> Later | None:
        """A number of this step that the script wants when it is there; None if it is another."""
        for index in self._numbers:
            if self.current[index] is tensor:
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
        if why := self.player.unfit():
            return why
        for ref, insides in zip(self.tape.optimizers, self._insides, strict=True):
            if not insides.are_of(_of(ref)):
                return "the optimizer has other groups or another state"
        for number, groups in enumerate(self._groups):
            for group, values in groups:
                if list(group.values()) != values and (why := self._what_was_set(number)):
                    return why
        return ""

    def _what_was_set(self, number: int) -> str:
        """Take over other learning rates; any other setting is fixed on the tape."""
        optimizer, tensors = self.tape.optimizers[number](), self.player.rates[number]
        if settings_of(optimizer) != self._settings[number]:
            return "settings of the optimizer were changed"
        if tensors is None:
            return "the learning rate was changed"
        for rate, tensor in zip(rates_of(optimizer), tensors, strict=True):
            tensor.fill_(rate)
        self._groups[number] = _values(optimizer)
        return ""

    def wrote(self, tensor: Tensor) -> Later | None:
        """A number of the step that was launched last; None if it is another one's."""
        for index, column in self._numbers.items():
            place = self._lasting.index(index)
            is_shown = place < len(self._shown) and self._shown[place]() is tensor
            if is_shown and tensor.data_ptr() == self.player.lasting[index].data_ptr():
                later = Later()
                self._history.wants_last(column, later)
                return later
        return None

    def launch(self) -> dict[int, weakref.ref[Tensor]]:
        """Compute the step.

        Returns:
            The tensors that the script holds and that share the graph's memory, by their id.
        """
        for ref in self._shown:  # of the step before, and still held: it gets memory of its own
            own_memory(ref())
        self.player.launch()
        if self._numbers:
            asked = [(self._numbers[index], later) for index, later in self._laters]
            self._history.launched(asked)
        self._shown = [weakref.ref(self.current[index]) for index in self._lasting]
        shown = {id(self.current[i]): weakref.ref(self.current[i]) for i in self._lasting}
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
        made = make_calls(calls, given, len(self.tape.looks), self.kind, self._home.run)
        pairs = []
        for index, result in enumerate(made):
            if result is not None:
                pairs.append((self.current[index], result))
                # For whoever reads it in another way than by a call of torch's.
                self.current[index].data = result.detach()
        for index, later in self._laters:
            self._ring.put(made[index], later)  # type: ignore[arg-type]
        # Stand-ins that the script may hold on to are not used again.
        for index, result in enumerate(made):
            if result is not None and index not in self.player.lasting:
                self._replace_stand_in(index)
        self._rewind()
        self.misses += 1
        return pairs

    def _replace_stand_in(self, index: int) -> None:
        old, fresh = self._stand_ins[index], _stand_in(self.player, index)
        self._stand_ins[index] = self.current[index] = fresh
        self._dropped = [fresh if one is old else one for one in self._dropped]
        self.ids.discard(id(old))
        self.ids.add(id(fresh))

    def _rewind(self) -> None:
        for index in self._lasting:
            current = self.current[index]
            if current is not None:
                self.ids.discard(id(current))
                self.current[index] = None
        self.position = 0
        self.fed.clear()
        self._laters = []


def _of(ref: weakref.ref[Any]) -> Any:
    optimizer = ref()
    assert optimizer is not None
    return optimizer


def _values(optimizer: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    return [(group, list(group.values())) for group in optimizer.param_groups]


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
    one = torch.empty(1, dtype=look.dtype, device=player.device)
    stand_in = one.expand(look.shape) if look.shape else one.reshape(())
    stand_in = stand_in.detach()
    stand_in._reparto_stride = look.stride  # type: ignore[attr-defined]
    return stand_in.requires_grad_() if look.requires_grad else stand_in
