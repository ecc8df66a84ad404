"""A step without what came before it."""

from __future__ import annotations

from typing import Any

from reparto.runtime.accelerate._calls import BACKWARD
from reparto.runtime.accelerate._run import refs_in
from reparto.runtime.accelerate._step_calls import StepOf, ZeroOf
from reparto.runtime.accelerate._tape import Call, Given, Made, Rebuilt, Recording


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
