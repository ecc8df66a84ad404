"""Follower: holds a running step against a tape, call by call.

Answers calls with stand-ins. Two kinds: what the script lets go of before the step ends gets one
tensor that is used in every step; what it keeps (loss, predictions) gets a fresh one each time,
which shares the memory into which the graph will write.
"""

from __future__ import annotations

import sys
import weakref
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor

from reparto.runtime.accelerate._compare import (
    FED,
    KEPT,
    MADE,
    VALUE,
    Turn,
    comparisons,
)
from reparto.runtime.accelerate._home import Home
from reparto.runtime.accelerate._later import History, Later, Ring
from reparto.runtime.accelerate._player import Player
from reparto.runtime.accelerate._run import make_calls
from reparto.runtime.accelerate._steps import Insides, rates_of, settings_of
from reparto.runtime.accelerate._tape import Call, Rebuilt, is_plain, same_value

_OTHER = "the optimizer has other groups or another state"
_flag = attrgetter("requires_grad")
_pointer = Tensor.data_ptr
#: References to a tensor that is only in a list, as they are counted here.
(_ALONE,) = map(sys.getrefcount, [torch.empty(0)])


class Follower:
    """Follows one tape.

    Call order: the turn is at `first` when a step may begin, and goes on with each call that is
    answered; when it is at `last`, ``what_changed``, that call and ``launch``; ``give_up`` after
    a miss.

    Args:
        player: The tape, ready to be played.
        ring: Where numbers are kept that the script wants later.
        home: Knows where tensors belong.
        turn: Goes from call to call.
    """

    def __init__(self, player: Player, ring: Ring, home: Home, turn: Turn) -> None:
        self.player, self.tape, self._ring, self._home = player, player.tape, ring, home
        self.kind, self.turn = player.device.type, turn
        self._lasting = [
            (index, tensor, self.tape.looks[index].requires_grad)
            for index, tensor in sorted(player.lasting.items())
        ]
        self._stand_ins = _stand_ins(player)
        self.current: list[Any] = list(self._stand_ins)
        self._dropped = [one for one in self._stand_ins if one is not None]
        self.ids = {id(tensor) for tensor in self._dropped}
        self.fed: dict[int, Tensor] = {}
        self._windows = list(player.windows.values())
        compares = comparisons(self)
        #: What answers the call with which the step begins, and the optimizer's step.
        self.first, self.last = compares[0], compares[-1]
        self._positions = {compare: position for position, compare in enumerate(compares)}
        #: What the script was given by the last step, which shares the graph's memory; None where
        #: it has its own by now.
        self._given: list[Tensor | None] = [None] * len(self._lasting)
        #: What it was given by the step before and has let go of since: given again.
        self._spare: list[Tensor | None] = [None] * len(self._lasting)
        self._laters: list[tuple[int, Later]] = []
        self._kept = self.tape.known()
        #: Tensors that are kept, and the call from which on the step changes them.
        self._changes = {id(self.tape.kept[i]): at for i, at in self.tape.changed.items()}
        for position, call in enumerate(self.tape.calls):
            for tensor in getattr(call.func, "tensors", ()):
                if not tensor.requires_grad:  # a buffer of a layer
                    self._changes.setdefault(id(tensor), position)
        self._pointers = list(map(_pointer, self._kept))
        self._flags = list(map(_flag, self._kept))
        self._settings = [settings_of(ref()) for ref in self.tape.optimizers]
        self._optimizers = [
            (ref, Insides(_of(ref)), _values(ref())) for ref in self.tape.optimizers
        ]
        self._holders: list[int] = []
        self._holders = list(map(sys.getrefcount, self._dropped))
        self.misses = 0
        numbers, looks = self.tape.numbers, self.tape.looks
        self._numbers = {index: column for column, index in enumerate(numbers)}
        places = {index: place for place, (index, _, _) in enumerate(self._lasting)}
        self._places = [(places[index], column) for column, index in enumerate(numbers)]
        self._history = History(
            player.history, [looks[index].dtype for index in numbers], player.rewind
        )
        self._renew()

    @property
    def is_wanted(self) -> bool:
        """Whether the script still has the optimizers."""
        return all(ref() is not None for ref in self.tape.optimizers)

    @property
    def position(self) -> int:
        """How many calls were answered so far."""
        compare = self.turn.compare
        return 0 if compare is None else self._positions.get(compare, 0)

    def computes(self, tensor: Tensor) -> bool:
        """Whether the calls that were put off make this tensor, or change it."""
        key, position = id(tensor), self.position
        return key in self.ids or self._changes.get(key, position) < position

    @property
    def put_off(self) -> list[Call]:
        """The calls that were answered and not made."""
        return self.tape.calls[: self.position]

    def is_as(self, want: tuple[int, Any], arg: Any) -> bool:
        """Whether an argument is what is expected, part by part."""
        kind, what = want
        if kind == MADE:
            return arg is self.current[what]
        if kind == KEPT:
            return arg is what
        if kind == VALUE:
            return arg is what or same_value(arg, what)
        if kind == FED:
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
        """Take a tensor that comes anew, if it is of the right kind."""
        now = self.fed.get(index)
        if now is not None:
            return arg is now
        if not isinstance(arg, Tensor) or id(arg) in self.ids:
            return False
        with torch._C.DisableTorchFunction():
            slot = self.player.slots[index]
            if arg.shape != slot.shape or arg.dtype is not slot.dtype or arg.requires_grad:
                return False
            if not is_plain(arg):
                return False
            window = self.player.windows.get(index)
            if window is None:
                slot.copy_(arg, non_blocking=True)
            else:
                window.seat(arg, *self.turn.batches)
        self.fed[index] = arg
        return True

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
        kept = self._kept
        if list(map(sys.getrefcount, self._dropped)) != self._holders:
            return "the script keeps a tensor that it did not keep before"
        if list(map(_pointer, kept)) != self._pointers:
            return "the memory of parameters has been exchanged"
        if list(map(_flag, kept)) != self._flags:
            return "parameters were frozen or thawed"
        if why := self.player.unfit():
            return why
        for number, (ref, insides, groups) in enumerate(self._optimizers):
            if not insides.are_of(_of(ref)):
                return _OTHER
            for group, values in groups:
                is_same = len(group) == len(values) and all(map(is_, group.values(), values))
                if not is_same and (why := self._what_was_set(number)):
                    return why
        return ""

    def _what_was_set(self, number: int) -> str:
        """Take over other learning rates; any other setting is fixed on the tape."""
        ref, insides, _ = self._optimizers[number]
        optimizer, tensors = _of(ref), self.player.rates[number]
        if not insides.takes_lists_of(optimizer):
            return _OTHER
        if settings_of(optimizer) != self._settings[number]:
            return "settings of the optimizer were changed"
        if tensors is None:
            return "the learning rate was changed"
        for rate, tensor in zip(rates_of(optimizer), tensors, strict=True):
            tensor.fill_(rate)
        self._optimizers[number] = ref, insides, _values(optimizer)
        return ""

    def wrote(self, tensor: Tensor) -> Later | None:
        """A number of the step that was launched last; None if it is another one's."""
        for place, column in self._places:
            if self._given[place] is tensor:
                return self._history.wants_last(column)
        return None

    def gives_away(self, tensor: Tensor) -> None:
        """Something is done with a tensor: if it shares the graph's memory, it gets its own."""
        for place, one in enumerate(self._given):
            if one is tensor:
                self._given[place] = None
                own_memory(tensor)

    def let_go(self) -> None:
        """Give the script all that shares the graph's memory: somebody else may launch it."""
        if self._numbers:
            self._history.fetch()
        for one in self._given:
            if one is not None:
                own_memory(one)
        self._given = [None] * len(self._lasting)
        self._spare = [None] * len(self._lasting)

    def end(self) -> None:
        """It is not followed any more: let go of the graph, with all of its memory.

        Comparisons go in circles with it, and nobody looks for those: what is there when the
        training begins is frozen.
        """
        self._history.end()
        self.current.clear()
        vars(self).clear()

    def launch(self) -> None:
        """Compute the step."""
        self._take_back()
        self.player.launch()
        for window in self._windows:
            window.go_on()
        if self._numbers:
            laters = self._laters
            asked = [(self._numbers[index], later) for index, later in laters] if laters else []
            self._history.launched(asked)
        self._renew(self._given)
        self.misses = 0

    def _take_back(self) -> None:
        """What the step before has given and is still held gets memory of its own."""
        given, spare = self._given, self._spare
        for place, count in enumerate(map(sys.getrefcount, given)):
            one, spare[place] = given[place], None
            if one is None:
                continue
            if count > _ALONE:
                own_memory(one)
            elif not (weakref.getweakrefcount(one) or one.__dict__):  # nobody knows it
                spare[place] = one

    def give_up(self) -> list[tuple[Tensor, Tensor]]:
        """Compute what was put off so far in the ordinary way.

        Returns:
            Pairs of a stand-in that the script may hold, and the tensor that it stands for.
        """
        given: list[Any] = [None] * (1 + max([*self.tape.kept, *self.tape.fed], default=-1))
        for index, tensor in (*self.tape.kept.items(), *self.fed.items()):
            given[index] = tensor
        made = make_calls(self.put_off, given, len(self.tape.looks), self.kind, self._home.run)
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
        self._renew()
        self.misses += 1
        return pairs

    def _replace_stand_in(self, index: int) -> None:
        old, fresh = self._stand_ins[index], _stand_in(self.player, index)
        self._stand_ins[index] = self.current[index] = fresh
        self._dropped = [fresh if one is old else one for one in self._dropped]
        self.ids.discard(id(old))
        self.ids.add(id(fresh))

    def _renew(self, given: list[Tensor | None] | None = None) -> None:
        """Be ready for the next step, with tensors that the script does not hold.

        Args:
            given: Takes those that it was given by the step that is over.
        """
        current, ids, spare = self.current, self.ids, self._spare
        for place, (index, memory, requires_grad) in enumerate(self._lasting):
            before, fresh = current[index], spare[place]
            ids.discard(id(before))
            if given is not None:
                given[place] = before
            if fresh is None:
                fresh = memory.detach()
                if requires_grad:
                    fresh.requires_grad_()
            spare[place], current[index] = None, fresh
            ids.add(id(fresh))
        self.fed.clear()
        if self._laters:
            self._laters = []


def _of(ref: weakref.ref[Any]) -> Any:
    optimizer = ref()
    assert optimizer is not None
    return optimizer


def _values(optimizer: Any) -> list[tuple[dict[str, Any], list[Any]]]:
    return [(group, list(group.values())) for group in optimizer.param_groups]


def own_memory(tensor: Tensor) -> None:
    """Give a tensor that shares a graph's memory a copy of its own."""
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
