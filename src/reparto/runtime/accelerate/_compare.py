"""Comparison: a call of the script against the one that a tape has at this place.

Each is a function of its own, written out for what the tape holds there, so that it takes a few
operations of Python: scripts of small models do little else. One hands the turn to the next:

    turn.compare ─► zero_grad? ─► linear? ─► tanh? ─► … ─► step? ─► launch
                        │            │         │
                        └────────────┴─────────┴── another call: MISS, and the turn stays

It is called with torch functions enabled or disabled, so it makes no call of torch's by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from reparto.runtime.accelerate._calls import BACKWARD
from reparto.runtime.accelerate._found import rebuilt
from reparto.runtime.accelerate._tape import Call, Given, Made, Rebuilt, same_value

if TYPE_CHECKING:
    from reparto.runtime.accelerate._follower import Follower

#: A call that is not the one on the tape.
MISS: Any = object()

# What an argument must be.
MADE, KEPT, FED, VALUE, PARTS = range(5)

Compare = Callable[[Any, Any, Any], Any]


class Turn:
    """Whose turn it is: the comparison that the next call of the script goes to.

    Attributes:
        compare: That of the call that is expected next; None where none is.
        begins: Told of a follower whose first call has come.
        went_back: Told what a backward pass was given that was put off.
        batches: Of the pass over the data that was cut last, with the place of the last one.
    """

    __slots__ = ("batches", "begins", "compare", "went_back")

    def __init__(
        self, begins: Callable[[Follower], None], went_back: Callable[[tuple[Any, ...]], None]
    ) -> None:
        self.compare: Compare | None = None
        self.begins, self.went_back = begins, went_back
        self.batches: tuple[list[torch.Tensor], int] = ([], -1)


def comparisons(follower: Follower) -> list[Compare]:
    """A function for each call of a tape that answers it, or misses."""
    found: list[Compare] = []
    behind: Compare | None = None
    for call in reversed(follower.tape.calls):
        is_first = len(found) == len(follower.tape.calls) - 1
        behind = _Writer(call, follower, behind, is_first=is_first).compiled()
        found.append(behind)
    return found[::-1]


def expected(noted: Any, follower: Follower) -> tuple[int, Any]:
    """What an argument must be, with what it is held against."""
    kind = type(noted)
    if kind is Made:
        return MADE, noted.index
    if kind is Given:
        kept = follower.tape.kept.get(noted.index)
        return (KEPT, kept) if kept is not None else (FED, noted.index)
    if kind in (tuple, list, dict, Rebuilt):
        parts = noted.parts if kind is Rebuilt else noted.values() if kind is dict else noted
        return PARTS, (noted, [expected(one, follower) for one in parts])
    return VALUE, noted


class _Writer:
    """Writes the comparison of one call.

    Args:
        call: The call.
        follower: Whose it is.
        behind: The comparison of the call behind it.
        is_first: Whether the step begins with it.
    """

    def __init__(
        self, call: Call, follower: Follower, behind: Compare | None, *, is_first: bool
    ) -> None:
        self._call, self._follower, self._is_first = call, follower, is_first
        self._names: dict[str, Any] = {
            "MISS": MISS,
            "FUNC": call.func,
            "NAMES": call.kwargs.keys(),
            "GRAD": call.modes[0],
            "DTYPE": call.modes[2],
            "KIND": follower.kind,
            "BEHIND": behind,
            "turn": follower.turn,
            "follower": follower,
            "current": follower.current,
            "fed": follower.fed,
            "is_as": follower.is_as,
            "feed": follower.feed,
            "same_value": same_value,
            "rebuilt": rebuilt,
            "is_grad": torch.is_grad_enabled,
            "is_any_cast": torch._C._is_any_autocast_enabled,
            "is_cast": torch.is_autocast_enabled,
            "cast_dtype": torch.get_autocast_dtype,
        }

    def compiled(self) -> Compare:
        """The comparison."""
        lines = ["def compare(func, args, kwargs):", *self._heads(), *self._arguments()]
        lines.append(" turn.compare = BEHIND")
        if self._is_first:
            lines.append(" turn.begins(follower)")
        if self._call.func in BACKWARD:
            lines.append(" turn.went_back(args)")
        lines.append(f" return {self._result(self._call.result)}")
        exec("\n".join(lines), self._names)
        compare: Compare = self._names["compare"]
        return compare

    def _heads(self) -> list[str]:
        call = self._call
        # Most functions are equal only to themselves; getters of attributes are made anew.
        equals: Any = type(call.func).__eq__
        is_itself = equals is object.__eq__
        differs = "func is not FUNC" if is_itself else "func is not FUNC and func != FUNC"
        names = "not kwargs or kwargs.keys() != NAMES" if call.kwargs else "kwargs"
        lines = [
            f" if {differs} or {names}: return MISS",
            f" if len(args) != {len(call.args)} or is_grad() is not GRAD: return MISS",
        ]
        if call.modes[1]:
            lines.append(" if not is_cast(KIND) or cast_dtype(KIND) is not DTYPE: return MISS")
        else:
            lines.append(" if is_any_cast() and is_cast(KIND): return MISS")
        return lines

    def _arguments(self) -> list[str]:
        lines: list[str] = []
        feeds: list[str] = []  # behind all others: they have effects
        places = [(f"args[{index}]", noted) for index, noted in enumerate(self._call.args)]
        places += [(f"kwargs[{name!r}]", noted) for name, noted in self._call.kwargs.items()]
        for place, noted in places:
            kind, what = expected(noted, self._follower)
            if kind == MADE:
                lines.append(f" if {place} is not current[{what}]: return MISS")
            elif kind == KEPT:
                lines.append(f" if {place} is not {self._named(what)}: return MISS")
            elif kind == FED:
                feeds += self._feed(place, what)
            elif kind == VALUE:
                name = self._named(what)
                lines.append(f" a = {place}")
                lines.append(f" if a is not {name} and not same_value(a, {name}): return MISS")
            else:
                feeds.append(f" if not is_as({self._named((kind, what))}, {place}): return MISS")
        return lines + feeds

    def _feed(self, place: str, index: int) -> list[str]:
        window = self._follower.player.windows.get(index)
        lines = [f" a = {place}", f" if not feed({index}, a): return MISS"]
        if window is None:
            return lines
        name = self._named(window)
        return [lines[0], f" if a is {name}.next: fed[{index}] = a", f" el{lines[1][1:]}"]

    def _result(self, noted: Any) -> str:
        """What the call is answered with, as Python."""
        kind = type(noted)
        if kind is Made:
            return f"current[{noted.index}]"
        if kind is Given:
            kept = self._follower.tape.kept.get(noted.index)
            return f"fed[{noted.index}]" if kept is None else self._named(kept)
        if kind is tuple:
            return "(" + "".join(f"{self._result(one)}, " for one in noted) + ")"
        if kind is list:
            return "[" + ", ".join(map(self._result, noted)) + "]"
        if kind is dict:
            pairs = (f"{self._named(k)}: {self._result(v)}" for k, v in noted.items())
            return "{" + ", ".join(pairs) + "}"
        if kind is Rebuilt:
            parts = ", ".join(map(self._result, noted.parts))
            return f"rebuilt({self._named(noted.like)}, [{parts}])"
        return self._named(noted)

    def _named(self, value: Any) -> str:
        name = f"V{len(self._names)}"
        self._names[name] = value
        return name
