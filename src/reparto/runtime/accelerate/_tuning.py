"""Tries ways of computing steps in the first steps of a training, and keeps those that help.

    optimizer's step   1   2   3   4   5 ……………… n ………………………
                       └ settles ──┘   └ trial of a way ┘ trial of the next, with what was kept
    memory                 └ kept between steps from here on, if that saves anything

What a trial decides is in `_trials.py`; the ways are in `_ways.py`. Steps are those of the
training itself, so nothing is computed twice. A process may train several models, one after the
other or by turns: each optimizer has a course of its own. Where several step in one round, the
first of them leads.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence

import torch

from reparto.runtime.accelerate._kept_memory import KeptMemory
from reparto.runtime.accelerate._trials import Trial, Verdict
from reparto.runtime.accelerate._ways import Way

#: So many steps settle: memory is taken, state is made.
SETTLING = 4


class Course:
    """What is tried and chosen for one optimizer.

    Args:
        ways: What there is to try, in order.
    """

    def __init__(self, ways: Sequence[Way]) -> None:
        self.waiting = list(ways)
        self.kept: list[Way] = []
        self.verdicts: dict[str, Verdict] = {}
        self.num_steps = 0
        self._shortest_s = float("inf")
        self._trial: Trial | None = None

    @property
    def tried(self) -> Way | None:
        """The way under trial, if the next step goes that way."""
        is_other = self._trial is not None and self._trial.goes_other
        return self.waiting[0] if is_other else None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to try."""
        return not self.waiting

    def took(self, seconds: float, kind: Hashable) -> None:
        """A step took so long."""
        if self.num_steps > 2:
            self._shortest_s = min(self._shortest_s, seconds)
        if self.num_steps < SETTLING:
            return
        if self._trial is not None:
            verdict = self._trial.took(seconds, kind)
            if verdict is None:
                return
            way = self.waiting.pop(0)
            self.verdicts[way.name] = verdict
            if verdict.is_kept:
                self.kept.append(way)
                self._shortest_s /= verdict.gain
        while self.waiting and not self.waiting[0].suits(self._shortest_s):
            self.waiting.pop(0)
        self._trial = Trial(self._shortest_s) if self.waiting else None

    def drop(self, way: Way) -> None:
        """The script has made a choice of its own."""
        if self.waiting and way is self.waiting[0]:
            self._trial = None
        self.waiting = [one for one in self.waiting if one is not way]
        self.kept = [one for one in self.kept if one is not way]


class Tuning:
    """Tries ways in the steps of the thread that has made it.

    Call order: ``stepped`` after each step of an optimizer, ``pass_begins`` when a loader starts
    over, ``finish`` at the end.

    Args:
        ways: What there is to try, in order.
        memory: Keeps memory between steps.
        clock: Seconds.
    """

    def __init__(
        self,
        ways: Sequence[Way],
        memory: KeptMemory,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._ways, self._memory, self._clock = list(ways), memory, clock
        self._thread = threading.get_ident()
        self._on: list[Way] = []
        self._courses: dict[Hashable, Course] = {}
        self._course = Course(())
        self._leader: Hashable = None
        self._rival: Hashable = None
        self._last_s: float | None = None
        self._begins_pass = False

    def pass_begins(self) -> None:
        """The step under way begins a pass over the data: what is done between passes is in it."""
        self._begins_pass = True

    def stepped(self, who: Hashable, num_rows: int) -> None:
        """An optimizer has stepped.

        Args:
            who: Which one.
            num_rows: How many rows the batch had.
        """
        if threading.get_ident() != self._thread:
            return
        if who is not self._leader and not self._leads(who):
            return
        self._rival = None
        now, last = self._clock(), self._last_s
        kind, self._begins_pass = (num_rows, self._begins_pass), False
        self._course.num_steps += 1
        self._memory.stepped(self._course.num_steps, now)
        if not self._course.is_over:
            if last is not None:
                self._course.took(now - last, kind)
            self._arrange()
            now = self._clock()
        self._last_s = now

    def _leads(self, who: Hashable) -> bool:
        """Whether this optimizer leads from now on: it has stepped twice and the leader not."""
        if self._leader is not None and who is not self._rival:
            self._rival = who
            return False
        self._leader, self._last_s = who, None
        if who not in self._courses:
            # Other ways add up in another order, and which is taken may change from run to run.
            may = not torch.are_deterministic_algorithms_enabled()
            self._courses[who] = Course(self._ways if may else ())
        self._course = self._courses[who]
        self._arrange()
        return True

    def _arrange(self) -> None:
        """Let the next step go the way that the course says."""
        course = self._course
        wanted = [way for way in self._ways if way in course.kept or way is course.tried]
        if wanted == self._on:
            return
        for way in reversed(self._on):
            if not way.switch(False):
                self._drop(way)
        self._on = []
        for way in wanted:
            if way in self._ways and way.switch(True):
                self._on.append(way)
            else:
                self._drop(way)

    def _drop(self, way: Way) -> None:
        self._ways = [one for one in self._ways if one is not way]
        for course in self._courses.values():
            course.drop(way)

    def leave(self) -> None:
        """Try nothing from now on, and compute as the script says."""
        for way in list(self._ways):
            self._drop(way)
        self._arrange()

    def finish(self) -> None:
        """Put everything back."""
        for way in reversed(self._on):
            way.switch(False)
        self._on = []
        self._memory.give_back()

    def told(self) -> list[str]:
        """What the user should know at the end."""
        told = self._memory.told()
        names = dict.fromkeys(name for one in self._courses.values() for name in one.verdicts)
        return told + [self._told(name) for name in names]

    def _told(self, name: str) -> str:
        found = [one.verdicts[name] for one in self._courses.values() if name in one.verdicts]
        kept = [one for one in found if one.is_kept]
        gains = sorted(one.gain for one in kept or found)
        gain = f"{gains[0]:.2f}" if len(gains) == 1 else f"{gains[0]:.2f} to {gains[-1]:.2f}"
        where = f" in {len(kept)} of {len(found)} trainings" if len(found) > 1 and kept else ""
        num_steps = sum(one.num_steps for one in kept or found)
        text = f"{name}{where}: {gain} times as fast, in {num_steps} steps that were timed"
        return text if kept else f"left alone, {text}"
