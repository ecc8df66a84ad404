"""How long the steps of a run take, from what its workers tell of them."""

from __future__ import annotations

from reparto._execution import Watcher
from reparto.spec import Event, Step, StepRecord


class Clock(Watcher):
    """Times the steps of a trial.

    Where workers do not wait for each other, all tell; a step is over when the last one has made
    it. A worker that is hardly faster is held back in the end, but later than any trial ends.

    Args:
        steps_a_round: Of the strategy.
        skip: Steps that are not timed: the first ones set up everything.
    """

    def __init__(self, steps_a_round: int, skip: int) -> None:
        self._round, self._skip = steps_a_round, skip
        self._timed: dict[int, _Timed] = {}

    def event(self, event: Event) -> None:
        if isinstance(event, Step) and event.record.step >= self._skip:
            self._timed.setdefault(event.rank, _Timed(self._round)).add(event.record)

    @property
    def step_s(self) -> float | None:
        """Seconds of a step; None while nothing is known."""
        if len(self._timed) < 2:
            return self._timed[0].step_s if 0 in self._timed else None
        first, last = self._made_by_all
        if last <= first:
            return None
        took_s = self._over_at(last) - self._over_at(first)
        return took_s / (last - first)

    @property
    def num_steps(self) -> int:
        """How many steps tell that."""
        if len(self._timed) < 2:
            return self._timed[0].num_steps if 0 in self._timed else 0
        first, last = self._made_by_all
        return max(0, last - first)

    @property
    def _made_by_all(self) -> tuple[int, int]:
        """The first step and the last of which it is known when each worker made it."""
        told = [one.records for one in self._timed.values()]
        return max(one[0].step for one in told), min(one[-1].step for one in told)

    def _over_at(self, step: int) -> float:
        """When the last worker made a step."""
        return max(one.made_at(step) for one in self._timed.values())


class _Timed:
    """The steps of one worker, timed in whole rounds."""

    def __init__(self, steps_a_round: int) -> None:
        self._round = steps_a_round
        self.records: list[StepRecord] = []
        self._firsts: dict[int, StepRecord] = {}  # by their place in a round
        self._has_round = False
        self.step_s: float | None = None
        self.num_steps = 0

    def add(self, record: StepRecord) -> None:
        """Another step."""
        self.records.append(record)
        if len(self.records) > 1:
            self._compare(record)
        else:
            self._firsts[record.step % self._round] = record

    def made_at(self, step: int) -> float:
        """When a step was over, between those that are told."""
        after = next(index for index, one in enumerate(self.records) if one.step >= step)
        right = self.records[after]
        if right.step == step:
            return right.time_s
        left = self.records[after - 1]
        part = (step - left.step) / (right.step - left.step)
        return left.time_s + part * (right.time_s - left.time_s)

    def _compare(self, last: StepRecord) -> None:
        """Two steps at the same place in a round, as far apart as there are.

        Not every step is told. A fast worker waits once a round: a part of a round tells little.
        """
        first = self._firsts.setdefault(last.step % self._round, last)
        if first is last and not self._has_round:
            first = self.records[0]
        elif first is not last and not self._has_round:
            self._has_round, self.num_steps = True, 0
        if last.step - first.step > self.num_steps:
            self.num_steps = last.step - first.step
            self.step_s = (last.time_s - first.time_s) / self.num_steps
