"""A second look at a tape that has been played for a while: is it worth compiling?

Compiling takes seconds, and how many steps are still to come is not known when a tape is made. So
it waits until the training has been played for some time already: it then costs a small part of
what the training has taken, and most that have come so far go on for longer.

    tape is made ──── played for some time ────┐ compile, hold against what was, time both
                                               └ the faster one is played from here on

Each tape is held to the time that its own steps took: the one of a short last batch is seldom
played, and does not become worth it by waiting for others. What is compiled must come to the same
from the same random numbers, or it is left. The random numbers of the training are those that it
would have drawn without a look, whenever that comes.
"""

from __future__ import annotations

import dataclasses
import os
import time
import weakref
from collections.abc import Callable
from typing import Protocol

import torch

from reparto.errors import UsageError
from reparto.runtime.accelerate._compiled import compiled
from reparto.runtime.accelerate._follower import Follower
from reparto.runtime.accelerate._home import Home
from reparto.runtime.accelerate._outcome import apart, drawing_on, outcome_of
from reparto.runtime.accelerate._player import Player
from reparto.runtime.accelerate._precision import Timed, kept_state
from reparto.runtime.accelerate._taped import Tape

#: So many seconds of playing come before it.
AFTER_S = 60.0
#: And so many for each call: long tapes take longer to compile.
A_CALL_S = 0.5
#: What is compiled is played if it is faster by so much.
WORTH = 1.05
#: What both come to may differ by so much of its norm: in float32, and where less will do.
EXACT, RELAXED = 1e-3, 5e-2


class Followed(Protocol):
    """Who follows tapes.

    Attributes:
        launched: What was launched last; None if that was nothing.
    """

    @property
    def launched(self) -> Follower | None: ...

    def exchange(self, follower: Follower, player: Player) -> Follower:
        """Play a tape by another player from now on."""


class SecondLook:
    """Looks at tapes again.

    Call order: ``now`` between two steps, as often as one likes.

    Args:
        make: Captures a tape.
        timed: Seconds of a launch.
        home: Knows where tensors belong.
        is_relaxed: Whether numbers may have less precision.
        clock: Seconds.

    Raises:
        UsageError: If ``REPARTO_COMPILE_AFTER`` is no time.
    """

    def __init__(
        self,
        make: Callable[[Tape], Player],
        timed: Timed,
        home: Home,
        *,
        is_relaxed: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._make, self._timed = make, timed
        self._home, self._clock = home, clock
        self._is_relaxed = is_relaxed
        self._after_s = _asked_for()
        self._looked: float | None = None
        self._played_s: weakref.WeakKeyDictionary[Follower, float] = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakSet[Follower] = weakref.WeakSet()
        self._told: list[str] = []

    def now(self, engine: Followed) -> None:
        """It is between two steps: look at what was played last, if it is time."""
        began, follower = self._clock(), engine.launched
        spent_s = 0.0 if self._looked is None else began - self._looked
        self._looked = began
        if follower is None or follower in self._seen:
            return
        self._played_s[follower] = played_s = self._played_s.get(follower, 0.0) + spent_s
        if played_s < self._due_after_s(follower.tape):
            return
        self._seen.add(follower)
        follower.let_go()
        player, words = self._compiled(follower.player)
        if player is not None:
            self._seen.add(engine.exchange(follower, player))
        self._looked = self._clock()
        if words:
            self._told.append(f"{words}, in {self._looked - began:.1f} s")

    def _due_after_s(self, tape: Tape) -> float:
        if self._after_s is not None:
            return self._after_s
        return max(AFTER_S, A_CALL_S * len(tape.calls))

    def _compiled(self, player: Player) -> tuple[Player | None, str]:
        tape = compiled(player.played, self._home.device.type, self._home.run)
        if tape is None:
            return None, ""
        is_exact = not (self._is_relaxed or any(call.modes[1] for call in player.played.calls))
        try:
            plain, other = (outcome_of(one, player, self._home) for one in (player.played, tape))
            for name, tensors in plain.items():
                if (far := apart(tensors, other[name])) > (EXACT if is_exact else RELAXED):
                    return None, f"compiled, {name} were {far:.1g} of their norm apart: left"
            del plain, other
            with kept_state(tape), torch.random.fork_rng(drawing_on(self._home.device)):
                made = self._make(tape)
                gain = self._timed(player) / self._timed(made)
        except Exception as error:  # whatever a compiler meets, the training goes on without it
            return None, f"could not be compiled ({type(error).__name__}: {_first_line(error)})"
        if gain < WORTH:
            return None, f"compiled, {gain:.2f} times as fast: left"
        made.tape = dataclasses.replace(made.tape, calls=player.tape.calls)
        return made, f"compiled, {gain:.2f} times as fast"

    def told(self) -> list[str]:
        """What became of it."""
        return list(self._told)


def _asked_for() -> float | None:
    """After so many seconds, if somebody has said so."""
    asked = os.environ.get("REPARTO_COMPILE_AFTER")
    if asked is None:
        return None
    try:
        seconds = float(asked)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:  # nor what is no number
        remedy = "give seconds, such as 60, or inf for never"
        raise UsageError(f"REPARTO_COMPILE_AFTER={asked} is no time", remedy=remedy)
    return seconds


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
