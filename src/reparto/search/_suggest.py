"""Suggester: which candidate is tried next. Pure: it is told what came of others, starts nothing.

first      the best-known settings of each technique, one after the other
then       a technique, the likelier the better its best candidate has done and the cheaper
           it is; of it the next settings known to be good, or else drawn ones
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from reparto.search._ground import Ground, count_of, key_of
from reparto.search._sampler import Informed, Sampler, Uniform
from reparto.search._space import Choice
from reparto.spec import Candidate, Evaluation, SearchKind, Settings

#: Of techniques ordered by their best candidate, each is so much less likely than the one before.
PER_RANK = 0.6
#: A technique is not tried any more after so many failures without a success.
MAX_FAILURES = 3
#: A draw that was tried already is drawn again so often before the technique counts as exhausted.
MAX_REPEATS = 30
#: Of a space with so many points at most, those that were never drawn are looked for.
MAX_LOOKED_AT = 10_000

Origin = Literal["portfolio", "sampled", "grid", "ensemble"]


@dataclass
class _Arm:
    """A technique, and how it has done."""

    ground: Ground
    sampler: Sampler
    portfolio: list[Settings]
    num_begun: int = 0
    num_failed: int = 0
    num_known: int = 0
    best: float = math.inf
    seconds: list[float] = field(default_factory=list)
    is_exhausted: bool = False

    @property
    def cost_s(self) -> float:
        """What one of its candidates takes, on average; 0 if nothing is known."""
        return sum(self.seconds) / len(self.seconds) if self.seconds else 0.0


class Suggester:
    """Thinks of candidates.

    Args:
        grounds: What is searched, the techniques to begin with first.
        search: How settings are chosen.
        higher_is_better: Of the metric.
        seed: Of all that is drawn.
        candidates: Exactly these, and nothing else; empty to search.
    """

    def __init__(
        self,
        grounds: Sequence[Ground],
        search: SearchKind,
        *,
        higher_is_better: bool,
        seed: int = 0,
        candidates: Sequence[Candidate] = (),
    ) -> None:
        self._sign = -1.0 if higher_is_better else 1.0
        self._random = random.Random(seed)
        self._count, self._tried = 0, set[tuple[Any, ...]]()
        informed = search in ("bayes", "asha")
        self._arms: dict[str, _Arm] = {}
        for index, ground in enumerate(grounds):
            own = seed + 1000 * index
            sampler = Informed(ground, own) if informed else Uniform(ground.space, own)
            first = list(ground.portfolio) if informed else []
            self._arms[ground.kind] = _Arm(ground, sampler, first)
        self._listed: Iterator[Candidate] | None = None
        self._num_listed = 0
        self._keeps_numbers = bool(candidates)
        if candidates:
            self._listed, self._num_listed = iter(candidates), len(candidates)
        elif search == "grid":
            self._listed = _grid([arm.ground for arm in self._arms.values()], seed)
            self._num_listed = grid_size([arm.ground for arm in self._arms.values()])

    def next(self, most_s: float = math.inf) -> Candidate | None:
        """The next candidate; None if there is none left that could end in `most_s` seconds."""
        if self._listed is not None:
            return self._next_listed()
        while arm := self._chosen(most_s):
            found = self._fresh(arm)
            if found is not None:
                settings, origin = found
                arm.num_begun += 1
                return self._made(arm.ground.kind, settings, origin)
            arm.is_exhausted = True
        return None

    def has_more(self) -> bool:
        """Whether something is left to try, were there time enough for it."""
        return self._listed is None and bool(self._open(math.inf))

    def most_left(self) -> float:
        """How many candidates may still come, at most; infinite if that is not known."""
        return math.inf if self._listed is None else self._num_listed

    def told(self, evaluation: Evaluation, loss: float | None = None) -> None:
        """Hear what came of a candidate.

        Args:
            evaluation: Of it.
            loss: What is known of a candidate that was given up after a fold: smaller is better.
        """
        arm = self._arms.get(evaluation.candidate.technique)
        if arm is None:
            return
        done = evaluation.status == "done" and evaluation.score is not None
        if done:
            loss = self._sign * cast(float, evaluation.score)
            arm.seconds.append(evaluation.busy_s)
        if evaluation.status == "failed":
            arm.num_failed += 1
        elif loss is not None:
            arm.num_known += 1
            arm.best = min(arm.best, loss)
        if evaluation.status == "stopped":
            return
        state = "done" if done else "failed" if evaluation.status == "failed" else "pruned"
        arm.sampler.told(evaluation.candidate.settings, loss, cast(Any, state))

    def recall(self, evaluations: Sequence[Evaluation]) -> None:
        """Take over what an earlier part of the search has tried."""
        for one in evaluations:
            candidate = one.candidate
            self._count = max(self._count, candidate.number + 1)
            if one.status == "stopped":
                continue  # is tried again, if it is thought of again
            self._tried.add(key_of(candidate.technique, candidate.settings))
            if arm := self._arms.get(candidate.technique):
                arm.num_begun += 1
                if isinstance(arm.sampler, Uniform):
                    arm.sampler.draw()  # what it has drawn already does not come again
                arm.portfolio = [
                    it for it in arm.portfolio if dict(it) != dict(candidate.settings)
                ]
            self.told(one)

    def _next_listed(self) -> Candidate | None:
        for one in cast("Iterator[Candidate]", self._listed):
            self._num_listed -= 1
            if key_of(one.technique, one.settings) in self._tried:
                continue
            if self._keeps_numbers:  # a candidate's seed follows from its number
                self._tried.add(key_of(one.technique, one.settings))
                self._count = max(self._count, one.number + 1)
                return one
            return self._made(one.technique, one.settings, one.origin)
        return None

    def _made(self, kind: str, settings: Settings, origin: Origin) -> Candidate:
        self._tried.add(key_of(kind, settings))
        self._count += 1
        return Candidate(number=self._count - 1, technique=kind, settings=settings, origin=origin)

    def _open(self, most_s: float) -> list[_Arm]:
        return [
            arm
            for arm in self._arms.values()
            if not arm.is_exhausted
            and not (arm.num_failed >= MAX_FAILURES and not arm.num_known)
            and arm.cost_s <= most_s
        ]

    def _chosen(self, most_s: float) -> _Arm | None:
        open_arms = self._open(most_s)
        if not open_arms:
            return None
        for arm in open_arms:  # each technique once, in order
            if not arm.num_begun:
                return arm
        ranked = sorted(open_arms, key=lambda arm: arm.best)
        cheapest = min((arm.cost_s for arm in ranked if arm.seconds), default=0.0) or 1.0
        weights = [
            PER_RANK**rank * (cheapest / max(arm.cost_s, cheapest)) ** 0.25
            for rank, arm in enumerate(ranked)
        ]
        if all(isinstance(arm.sampler, Uniform) for arm in ranked):
            weights = [1.0] * len(ranked)
        return self._random.choices(ranked, weights)[0]

    def _fresh(self, arm: _Arm) -> tuple[Settings, Origin] | None:
        """Settings of this technique that were not tried; None if it seems that there are none."""
        while arm.portfolio:
            settings = arm.portfolio.pop(0)
            if key_of(arm.ground.kind, settings) not in self._tried:
                return settings, "portfolio"
        for _ in range(MAX_REPEATS):
            settings = arm.sampler.draw()
            if key_of(arm.ground.kind, settings) not in self._tried:
                return settings, "sampled"
            arm.sampler.told(settings, None, "failed")
        missed = self._missed(arm.ground)
        return None if missed is None else (missed, "sampled")

    def _missed(self, ground: Ground) -> Settings | None:
        """A point that was never drawn, where there are few enough to look at each of them."""
        axes = [(it, one.values) for it, one in ground.space.items() if isinstance(one, Choice)]
        if len(axes) < len(ground.space) or count_of(axes) > MAX_LOOKED_AT:
            return None
        names = [name for name, _ in axes]
        for point in itertools.product(*(values for _, values in axes)):
            settings = dict(zip(names, point, strict=True))
            if key_of(ground.kind, settings) not in self._tried:
                return settings
        return None


def _grid(grounds: Sequence[Ground], seed: int) -> Iterator[Candidate]:
    """All points of each technique's grid, one technique after the other in turns."""
    turns = [(ground.kind, _points(ground, seed)) for ground in grounds]
    while turns:
        left = []
        for kind, points in turns:
            settings = next(points, None)
            if settings is not None:
                left.append((kind, points))
                yield Candidate(number=0, technique=kind, settings=settings, origin="grid")
        turns = left


def _points(ground: Ground, seed: int) -> Iterator[Settings]:
    """Each point once: in order where the request gives the values, else spread over the grid."""
    axes = ground.axes()
    count = count_of(axes)
    step = 1 if ground.asked else _coprime_to(count, seed)
    for index in range(count):
        rest, settings = (index * step) % count, dict[str, Any]()
        for name, values in reversed(axes):
            rest, place = divmod(rest, len(values))
            settings[name] = values[place]
        yield {name: settings[name] for name, _ in axes}


def _coprime_to(count: int, seed: int) -> int:
    step = max(1, int(count * 0.618) + seed % 7)
    while math.gcd(step, count) != 1:
        step += 1
    return step


def grid_size(grounds: Sequence[Ground]) -> int:
    """Candidates of a grid."""
    return sum(count_of(ground.axes()) for ground in grounds)
