"""Steps of a strategy that are played: other work that takes as long, and its own talking.

    step   work ─ meet ─ work ─ meet ─ … ─ work ─ the live strategy: packs, sends, waits, steps

Adding up what computing, packing and talking take one by one misses what they do to each other:
workers that meet often wait for whoever is held up just then, a server's work takes its time from
its own worker, a line is shared. So each candidate's own code runs for some steps over the group
that it would have, on tensors shaped like the script's. In the place of the script stand products
of matrices that take as much processor time; so no candidate needs a start of its own. Where a
step computes for much longer than it talks, a part of the computing is played, and the rest added.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from reparto import strategies
from reparto.comm import MAX, Group
from reparto.errors import UsageError
from reparto.measure._paces import Pace, shared_rows
from reparto.runtime._actors import Actor, update_s
from reparto.runtime._current import outside
from reparto.spec import Cluster, Host, Profile, Rehearsal, SliceTime, StrategyConfig

#: Steps that are timed, and for about how long; a round that takes longer than the last is not
#: played.
LEAST_STEPS, TIMED_S, LONGEST_S = 4, 0.6, 4.0
#: What took less than that part of it is timed again, with as many steps as that takes.
ENOUGH = 0.6
#: A step, or a round, computes for so long at least, and for so many times as long as lines are
#: busy, if the script's does: what travels behind the computing is to be hidden there.
LEAST_COMPUTING_S, TIMES_TALKING = 0.15, 2.5
#: Taken for what lines carry, where nothing is known of them.
_FAST_BITS_PER_S = 1e9
#: Numbers that travel of each slice; slices of a worker at most.
_FIELDS, _MOST_SLICES = 6, 12
_SIDE = 192


class Work:
    """Products of matrices, which stand for a script's computing."""

    def __init__(self) -> None:
        self._left, self._right = torch.randn(_SIDE, _SIDE), torch.randn(_SIDE, _SIDE)
        self._out = torch.empty(_SIDE, _SIDE)
        self._by_cpu = torch.get_num_threads() == 1
        self._unit_s = 0.0 if self._by_cpu else self._timed()
        self._ahead_s = 0.0

    def _timed(self) -> float:
        """Seconds of one, while the others do the same."""
        self._multiply(50)
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < 0.08:
            self._multiply(20)
            count += 20
        return (time.perf_counter() - began) / count

    def _multiply(self, count: int) -> None:
        for _ in range(count):
            torch.mm(self._left, self._right, out=self._out)

    def of(self, pace: Pace, rows: float) -> float:
        """How much of it a slice's step is, in its own seconds."""
        return pace.cpu_s(rows) if self._by_cpu else pace.step_s(rows)

    def do(self, seconds: float) -> None:
        """Compute: for so much processor time of this thread, or as much as takes so long."""
        if not self._by_cpu:
            self._multiply(round(max(0.0, seconds) / self._unit_s))
            return
        end = time.thread_time() + seconds - self._ahead_s  # pieces may be shorter than a product
        while time.thread_time() < end:
            self._multiply(1)
        self._ahead_s = time.thread_time() - end


class Stage:
    """Where candidates are played; every member makes one.

    Args:
        group: Who takes part.
        slices: What this worker has measured of itself, beside so many others.
        profile: Of the script.
        owners: Sets of parameters.
        rate_bits_per_s: Of the slowest line; None for no line at all.
        fresh: Makes another group of the same members; collective.
    """

    def __init__(
        self,
        group: Group,
        slices: Sequence[SliceTime],
        profile: Profile,
        owners: Sequence[Any],
        rate_bits_per_s: float | None,
        fresh: Callable[[], Group],
    ) -> None:
        self.group, self.profile, self.owners = group, profile, owners
        self.rate_bits_per_s, self.fresh = rate_bits_per_s, fresh
        self.others = fresh()
        self.everyone = _gathered(group, slices)
        group.barrier().wait()
        self.work = Work()

    @cached_property
    def updates_s(self) -> list[float]:
        """Processor time of the updates of each set of parameters."""
        return [update_s(owner) for owner in self.owners]

    def play(self, candidates: Sequence[StrategyConfig], until: float) -> list[Rehearsal]:
        """Play them one after the other, as long as there is time; collective.

        Args:
            candidates: Those that tell most about others come first.
            until: When the first member wants to be through, by its clock.
        """
        found: list[Rehearsal] = []
        if not all(self.everyone):
            return found  # of somebody nothing is known
        known: dict[Any, tuple[float, int] | None] = {}
        for candidate in sorted(candidates, key=_telling):
            config = strategies.from_spec(candidate).settled.held
            alike = self._alike(config)
            if alike not in known:
                is_short = self._is_short(config)
                end = time.perf_counter() + (self._expected_s(config) if is_short else 0.0)
                is_in_time = self._is_agreed(end < until)  # a shorter one may still be
                known[alike] = self._played(config) if is_short and is_in_time else None
            seconds = known[alike]
            if seconds is not None:
                found.append(
                    Rehearsal(
                        strategy=candidate,
                        num_workers=self.group.size(),
                        step_s=seconds[0],
                        num_steps=seconds[1],
                    )
                )
        return found

    def _alike(self, config: strategies.Config) -> Any:
        """The same for settings whose steps are the same."""
        if isinstance(config, strategies.Shared):
            plain = dataclasses.replace(config, balance="even")
            return plain, tuple(self._shared(config)[1])
        return config

    def _is_agreed(self, mine: bool) -> bool:
        """What the first member says."""
        return bool(self.group.share(torch.tensor([float(mine)])))

    def _is_short(self, config: strategies.Config) -> bool:
        """Whether the lines carry a step in a moment; the same on every member."""
        size = self.group.size()
        try:
            config.check(size)
        except UsageError:
            return False
        if config.num_serving:
            return False  # it needs workers that serve
        every = max(1, int(getattr(config, "sync_every", 1)))
        line_s = self._line_s(config) if self.rate_bits_per_s else 0.0
        return line_s + every * self._part(config) * self._slowest_s(config) < LONGEST_S

    def _expected_s(self, config: strategies.Config) -> float:
        """About how long it takes to play: a round that sets up, and steps that are timed."""
        every = max(1, int(getattr(config, "sync_every", 1)))
        line_s = self._line_s(config) if self.rate_bits_per_s else 0.0
        step_s = line_s + self._part(config) * self._slowest_s(config)
        timed_s = min(LONGEST_S, max(TIMED_S, LEAST_STEPS * step_s))
        timed_s += self._ahead(config) * step_s
        return every * line_s + max(every * step_s, timed_s)

    def _line_s(self, config: strategies.Config) -> float:
        """How long the busiest line carries what belongs to a step."""
        size = self.group.size()
        hosts = tuple(Host(name=str(rank)) for rank in range(size))
        messages = config.traffic(self.profile, Cluster(hosts=hosts))
        sent = sum(
            one.wire_bytes(size) / one.every * (size if one.pattern in ("push", "pull") else 1)
            for one in messages
        )
        return 8 * sent / (self.rate_bits_per_s or _FAST_BITS_PER_S)

    def _part(self, config: strategies.Config) -> float:
        """How much of the computing is played."""
        every = max(1, int(getattr(config, "sync_every", 1)))
        line_s = self._line_s(config)
        if getattr(config, "overlap", 0):  # a round's messages travel behind some of its steps
            least_s = max(LEAST_COMPUTING_S, TIMES_TALKING * every * line_s)
        else:
            least_s = max(LEAST_COMPUTING_S / every, TIMES_TALKING * line_s)
        return min(1.0, least_s / max(self._slowest_s(config), 1e-9))

    def _slowest_s(self, config: strategies.Config) -> float:
        """How long the slowest member computes in a step."""
        speeds, rows = self._shared(config)
        return max(pace.step_s(count) for pace, count in zip(speeds, rows, strict=True))

    def _played(self, config: strategies.Config) -> tuple[float, int] | None:
        """Seconds of a step, and how many were timed; None where it cannot be played."""
        # One that talks from a thread of its own, or leaves some behind, has a group to itself.
        is_alone = not getattr(config, "waits", True) or bool(getattr(config, "overlap", False))
        group = self.fresh() if is_alone else self.others
        strategy = config.build(group)
        strategy.outside = outside
        actors: list[Actor] = []
        is_good = True
        try:
            actors = [
                Actor(strategy, group, owner, spent_s)
                for owner, spent_s in zip(self.owners, self.updates_s, strict=True)
            ]
            strategy.resume()
        except Exception:  # whatever it is that it cannot do here, it is predicted instead
            is_good = False
        every = max(1, int(getattr(config, "sync_every", 1)))
        try:
            if not self._all_agree(is_good):
                return None
            part = max(self._part(config), self._updates(config, actors))
            # What a strategy does once a round takes much longer the first time; what travels for
            # some steps is not waited for before the second round.
            rounds = 2 if getattr(config, "overlap", 0) else 1
            setup_s = self._timed(config, actors, rounds * every, 0.0)
            steps = _num_steps(setup_s + part * self._slowest_s(config), every)
            step_s = self._timed(config, actors, steps, part)
            if steps * step_s < ENOUGH * TIMED_S:  # steps are shorter than was thought
                steps = _num_steps(step_s, every)
                step_s = self._timed(config, actors, steps, part)
            return (1 - part) * self._slowest_s(config) + step_s, steps
        finally:
            with contextlib.suppress(Exception):
                strategy.finish()

    def _updates(self, config: strategies.Config, actors: list[Actor]) -> float:
        """How much of the computing is making gradients and updates, which are played whole."""
        speeds, rows = self._shared(config)
        rank = self.group.rank()
        mine = sum(actor.update_s for actor in actors)
        part = mine / max(self.work.of(speeds[rank], rows[rank]), 1e-9)
        return min(1.0, float(self.group.reduced(torch.tensor([part]), MAX)))

    def _all_agree(self, mine: bool) -> bool:
        return float(self.group.reduced(torch.tensor([float(not mine)]), MAX)) == 0.0

    def _timed(
        self, config: strategies.Config, actors: list[Actor], steps: int, part: float
    ) -> float:
        """Seconds of a step.

        Where nobody waits, as the slowest member sees it, once others are as far ahead as they
        may be; else in the mean over members, who take equally long but for where they end.
        """
        untimed = self._ahead(config)
        speeds, everyones = self._shared(config)
        pace, rows = speeds[self.group.rank()], everyones[self.group.rank()]
        load_s = 0.0
        if self.profile.loads_whole and config.batches_a_step(2) > 1:
            load_s = (self.group.size() - 1) * self.profile.load_s
        update_s = sum(actor.update_s for actor in actors)
        spent_s = max(0.0, part * self.work.of(pace, rows) + load_s - update_s) if part else 0.0
        # The same on every member: whoever meets more often would wait in vain.
        num_meetings = round(max(one.num_meetings for one in speeds))
        self.group.barrier().wait()
        began = time.perf_counter()
        for number in range(untimed + steps):
            if number == untimed:
                began = time.perf_counter()
            self._step(actors, spent_s, num_meetings)
        took_s = time.perf_counter() - began
        mine = torch.tensor([took_s / steps], dtype=torch.float64)
        if not untimed:
            return float(self.group.sum(mine)) / len(speeds)
        return float(self.group.reduced(mine, MAX))

    def _ahead(self, config: strategies.Config) -> int:
        """How many steps the fastest may be ahead; 0 where all wait for all."""
        if not isinstance(config, strategies.Shared) or config.waits:
            return 0
        return config.lead(self.group.size())

    def _step(self, actors: list[Actor], spent_s: float, num_meetings: int) -> None:
        """Forward and backward, with half of the meetings each, then the optimizers' steps."""
        forward_s = min(0.9, max(0.1, self.profile.forward_fraction)) * spent_s
        count = sum(len(actor.parameters.tensors) for actor in actors)
        early = (num_meetings + 1) // 2
        forward = self._pieces(forward_s, count, early)
        for actor in actors:
            actor.forward(forward)
        backward = self._pieces(spent_s - forward_s, count, num_meetings - early)
        for actor in actors:
            actor.backward(backward)
            actor.step()

    def _pieces(self, seconds: float, count: int, num_meetings: int) -> Callable[[], None]:
        """A piece of the work, for each of so many calls, and of the meetings."""
        numbers = itertools.count(1)

        def work() -> None:
            number = next(numbers)
            self.work.do(seconds / max(1, count))
            due = number * num_meetings // count - (number - 1) * num_meetings // count
            for _ in range(due):
                self._meet()

        return work

    def _meet(self) -> None:
        self.group.sum(torch.zeros(64))

    def _shared(self, config: strategies.Config) -> tuple[list[Pace], list[float]]:
        """Everyone's pace, and rows."""
        speeds = [Pace.of(slices, apart=config.computes_apart) for slices in self.everyone]
        total = max(1, self.profile.batch_rows) * config.batches_a_step(len(speeds))
        balanced = config.balances(loads_whole=self.profile.loads_whole)
        return speeds, shared_rows(speeds, total, balanced=balanced)


def _num_steps(step_s: float, every: int) -> int:
    """How many steps are timed, in whole rounds."""
    wanted = max(LEAST_STEPS, int(TIMED_S / max(step_s, 1e-4)))
    rounds = math.ceil(min(wanted, 100) / every)
    if step_s * every * rounds > LONGEST_S:
        rounds = max(1, int(LONGEST_S / (step_s * every)))
    return every * rounds


#: Kinds in the order in which they are played: one of each way first.
_FIRST = ("all-reduce", "local-sgd", "parameter-server", "diloco")


def _telling(candidate: StrategyConfig) -> tuple[bool, int, bool]:
    """Plain ones before those with compression and rounds of a few steps."""
    kind, settings = candidate.kind, candidate.settings
    is_special = "compressor" in settings or "mode" in settings
    rank = _FIRST.index(kind) if kind in _FIRST else len(_FIRST)
    return is_special, rank, "batch" in settings


def _gathered(group: Group, slices: Sequence[SliceTime]) -> list[list[SliceTime]]:
    """Every member's slices."""
    mine = torch.zeros(_MOST_SLICES, _FIELDS, dtype=torch.float64)
    for row, one in zip(mine, slices[-_MOST_SLICES:], strict=False):
        row.copy_(_numbers(one))
    return [
        [_slice(row) for row in found if float(row[0]) > 0] for found in group.gather_all(mine)
    ]


def _numbers(one: SliceTime) -> Tensor:
    told = (one.rows, one.step_s, one.cpu_s, one.apart, one.num_meetings, 0)
    return torch.tensor([float(number) for number in told], dtype=torch.float64)


def _slice(row: Tensor) -> SliceTime:
    rows, step_s, cpu_s, apart, num_meetings, _ = row.tolist()
    return SliceTime(
        rows=int(rows), forward_s=step_s, backward_s=0.0, update_s=0.0, cpu_s=cpu_s,
        apart=bool(apart), num_meetings=num_meetings,
    )  # fmt: skip
