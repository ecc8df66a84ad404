"""Workers that wait for each other, simulated: a clock for each, as one vector.

each step    computing ───┐ all who take part are there ─► sent ─► packing
buckets      sent one after the other, while the slowest still computes
server       takes what comes, in that order, and answers when it has all
rounds       every so many steps; between them clocks run apart; a round may travel for some
steps, and only who needs it before it has come waits
gossip       a round with neighbours: only they are waited for
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from reparto.plan._noise import Vector
from reparto.spec import Pattern


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A recurring message of a strategy, in seconds.

    Attributes:
        pattern: Who talks to whom.
        seconds: Until all have it, once all are there.
        taken_s: Processor time that it takes from computing where it is sent meanwhile.
        ready_at: When in the step, as a part of it.
        every: So many steps.
        window: For how many steps it may travel, or for which part of one; 0 for who waits for it.
    """

    pattern: Pattern
    seconds: float
    taken_s: float = 0.0
    ready_at: float = 1.0
    every: int = 1
    window: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Work:
    """What workers do in a step.

    Attributes:
        compute_s: Of each.
        pack_s: The strategy's own, a step.
        talks: What is sent.
        distances: Of the neighbours of successive rounds, where only these are waited for: in
            both directions around a ring; none for pairs drawn anew.
        gossips: Whether only neighbours are waited for.
        gossips_every: Steps of a round.
        seed: Of the pairs.
    """

    compute_s: Vector
    pack_s: float
    talks: tuple[Talk, ...]
    distances: tuple[int, ...] = ()
    gossips: bool = False
    gossips_every: int = 1
    seed: int = 0


@dataclass
class Spent:
    """Seconds of all workers together, by what they were spent on."""

    computing: float = 0.0
    packing: float = 0.0
    talking: float = 0.0
    waiting: float = 0.0
    down: float = 0.0

    @property
    def total(self) -> float:
        """All of them."""
        return self.computing + self.packing + self.talking + self.waiting + self.down


@dataclass
class _UnderWay:
    """A round that travels."""

    due: int
    comes_at: float
    late: Vector


@dataclass
class Clocks:
    """The clocks of workers that wait for each other.

    Attributes:
        work: What they do.
        at: What each clock shows.
        spent: On what.
    """

    work: Work
    at: Vector = field(init=False)
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        work = self.work
        self.at = np.zeros(len(work.compute_s))
        talks = [] if work.gossips else sorted(work.talks, key=lambda one: one.ready_at)
        each = [one for one in talks if one.every == 1]
        self._blocking = _merged([one for one in each if not one.window])
        self._hidden = [one for one in each if one.window]
        # Who travels for some steps does not keep the line from who is waited for.
        self._rounds = sorted((one for one in talks if one.every > 1), key=lambda one: one.window)
        self._ready_at = np.array([[one.ready_at] for one in self._hidden])
        self._hidden_s = sum(one.taken_s for one in self._hidden if one.ready_at < 1.0)
        self._packs_every = work.gossips_every if work.gossips else 1
        if self._rounds and not each:
            self._packs_every = min(one.every for one in self._rounds)
        self._pairs = np.random.default_rng(work.seed)
        self.drop()

    def drop(self) -> None:
        """Forget what travels; training begins anew, from a checkpoint."""
        self._under_way: list[_UnderWay] = []
        self._line_free = 0.0
        self._taken_s = 0.0

    def step(self, number: int, factors: Vector) -> None:
        """All workers make a step.

        Args:
            number: Of the step; the first one is 0.
            factors: How many times as long as usual each computes.
        """
        self._compute(factors)
        if (number + 1) % self._packs_every == 0:
            packing_s = self._packs_every * self.work.pack_s
            self.at = self.at + packing_s
            self.spent.packing += len(self.at) * packing_s
        for one in self._rounds:
            if (number + 1) % one.every == 0:
                self._round(one, number)
        self._awaited(number)
        if self.work.gossips and (number + 1) % self.work.gossips_every == 0:
            self._gossip((number + 1) // self.work.gossips_every - 1)

    def finish(self) -> None:
        """Wait for all that still travels."""
        if self._under_way:
            self._awaited(max(one.due for one in self._under_way))

    def _compute(self, factors: Vector) -> None:
        """All of a step but packing and rounds."""
        compute = self.work.compute_s * factors
        sending_s, self._taken_s = self._hidden_s + self._taken_s, 0.0
        busy, passed = compute + sending_s, 0.0
        self.spent.computing += float(compute.sum())
        self.spent.talking += len(compute) * sending_s
        for one in self._blocking:
            if one.ready_at < 1.0:
                self.at = self.at + (one.ready_at - passed) * busy
                passed = one.ready_at
                self._meet(one)
        computed = self.at + (1.0 - passed) * busy
        self.at = np.maximum(computed, self._exchanged(computed - busy, busy))
        late = np.minimum(self.at - computed, computed.max() - computed)
        self.spent.waiting += float(late.sum())
        self.spent.talking += float((self.at - computed - late).sum())
        for one in self._blocking:
            if one.ready_at >= 1.0:
                self._meet(one)

    def _exchanged(self, began: Vector, busy: Vector) -> float:
        """When all has come that is sent in each step while computing goes on."""
        free = 0.0
        if self._hidden:
            ready_at = (began + self._ready_at * busy).max(axis=1)
            for one, ready in zip(self._hidden, ready_at.tolist(), strict=True):
                free = max(free, ready) + one.seconds
        return free

    def _meet(self, one: Talk) -> None:
        """All wait for all; a server takes what comes meanwhile."""
        begin = float(self.at.max())
        is_queue = one.pattern == "push"
        end = _queued(self.at, one.seconds) if is_queue else begin + one.seconds
        self.spent.waiting += float((begin - self.at).sum())
        self.spent.talking += len(self.at) * (end - begin)
        self.at = np.full_like(self.at, end)

    def _round(self, one: Talk, number: int) -> None:
        if one.window > 0:
            begin = float(self.at.max())
            due = number + max(1, round(one.window))
            self._line_free = max(begin, self._line_free) + one.seconds
            self._under_way.append(_UnderWay(due, self._line_free, begin - self.at))
            self._taken_s += min(one.taken_s, one.seconds)
        else:
            self._meet(one)

    def _awaited(self, number: int) -> None:
        for one in [one for one in self._under_way if one.due <= number]:
            self._under_way.remove(one)
            gap = np.maximum(0.0, one.comes_at - self.at)
            waiting = float(np.minimum(gap, one.late).sum())
            self.spent.waiting += waiting
            self.spent.talking += float(gap.sum()) - waiting
            self.at = self.at + gap

    def _gossip(self, number: int) -> None:
        """A round with neighbours."""
        seconds = self.work.talks[0].seconds
        peers = self._neighbours(number)
        begin = np.maximum.reduce([self.at, *peers])
        self.spent.waiting += float((begin - self.at).sum())
        self.spent.talking += len(begin) * len(peers) * seconds
        self.at = begin + len(peers) * seconds

    def _neighbours(self, number: int) -> Sequence[Vector]:
        """Their clocks."""
        size = len(self.at)
        if not self.work.distances:
            order = self._pairs.permutation(size)
            partner = order.copy()
            partner[: size - size % 2] = order[: size - size % 2].reshape(-1, 2)[:, ::-1].ravel()
            found = np.empty_like(self.at)
            found[order] = self.at[partner]
            return [found]
        distance = self.work.distances[number % len(self.work.distances)]
        ways = dict.fromkeys((distance % size, -distance % size))
        return [np.roll(self.at, way) for way in ways]


def _merged(talks: Sequence[Talk]) -> list[Talk]:
    """Messages that follow one another at once, as one: there are as many as there are tensors."""
    found: list[Talk] = []
    for one in talks:
        last = found[-1] if found else None
        is_alike = last is not None and last.ready_at == one.ready_at
        if last is not None and is_alike and "push" not in (last.pattern, one.pattern):
            found[-1] = replace(last, seconds=last.seconds + one.seconds)
        else:
            found.append(one)
    return found


def _queued(arrivals: Vector, seconds: float) -> float:
    """When a line has taken all that came; so long if all came at once."""
    count = len(arrivals)
    left = np.arange(count, 0, -1) * (seconds / count)
    return float((np.sort(arrivals) + left).max())
