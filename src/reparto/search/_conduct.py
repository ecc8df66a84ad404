"""Conductor: who does what, when, and when it ends. It waits for whatever comes first.

while there is time, money, and something left to try:
    staff     acquire workers while there is more to try than there are; release idle ones
    give      idle workers the next candidates
    wait      for events: a rung is reached (go on, or give up), done, failed, died
    watch     the clock of each candidate
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reparto.errors import EngineError
from reparto.search._bill import Ledger
from reparto.search._crew import (
    Crew,
    Event,
    Ready,
    RungReached,
    Task,
    TaskDone,
    TaskFailed,
    WorkerDied,
)
from reparto.search._prune import Pruner
from reparto.search._rows import Answer
from reparto.search._suggest import Suggester
from reparto.search._tally import Tally
from reparto.search._uninterrupted import uninterrupted
from reparto.search._watch import SearchWatcher
from reparto.spec import Candidate, Evaluation, Rung

#: Looks at clocks at least so often.
LOOK_S = 0.2
#: A candidate whose worker died of something else is tried so often in all.
MAX_TRIES = 2
#: So many workers start together at first.
START_TOGETHER = 2
#: So many workers may die before they are ready, one after another.
MAX_STILLBORN = 3


@dataclass(frozen=True)
class Limits:
    """When a search ends. Seconds since it began; what is needed to finish is not in them.

    Attributes:
        time_s: At the latest.
        cost: In money.
        trials: Candidates.
        candidate_s: Of one candidate.
    """

    time_s: float = math.inf
    cost: float = math.inf
    trials: float = math.inf
    candidate_s: float = math.inf


@dataclass(frozen=True)
class Parts:
    """Those that a conductor asks and tells.

    Attributes:
        crew: The workers.
        suggester: Thinks of candidates.
        pruner: Gives them up; None to give up none.
        rungs: Of a technique's candidates.
        ledger: Who is held, who works.
        clock: Seconds since the search began.
        finish_s: How long finishing takes, with what is done so far.
        keep: Is handed a candidate that is done, with its answers for each fold.
        watcher: Of the user.
    """

    crew: Crew
    suggester: Suggester
    pruner: Pruner | None
    rungs: Callable[[str], tuple[Rung, ...]]
    ledger: Ledger
    clock: Callable[[], float]
    finish_s: Callable[[Sequence[Evaluation]], float]
    keep: Callable[[Evaluation, Sequence[Answer]], None]
    watcher: SearchWatcher


class Conductor:
    """Runs a search until it is over. Called by one thread.

    Args:
        parts: Those that it asks and tells.
        limits: When it is over.
        min_workers: That are kept.
        max_workers: At most.
        seed: Of the candidates.
        higher_is_better: Of the metric.
        earlier: Of the same search, before it was resumed.
    """

    def __init__(
        self,
        parts: Parts,
        limits: Limits,
        *,
        min_workers: int,
        max_workers: int,
        seed: int,
        higher_is_better: bool,
        earlier: Sequence[Evaluation] = (),
    ) -> None:
        self._parts, self._limits, self._seed = parts, limits, seed
        self._most = min(max_workers, parts.crew.max_workers)
        self._fewest = min(min_workers, self._most)
        if self._fewest < min_workers:
            parts.watcher.note(f"{min_workers} workers are asked for; there can be {self._most}")
        self._sign = -1.0 if higher_is_better else 1.0
        self.evaluations = list(earlier)
        self.best = min(
            (one for one in earlier if one.score is not None), key=self._loss, default=None
        )
        self._num_begun = len(earlier)
        self._starting: dict[int, float] = {}  # since when
        #: How long the last worker took from when it was acquired until it was ready.
        self.start_s = 0.0
        self._idle: list[int] = []
        self._running: dict[int, Tally] = {}
        self._again: list[Tally] = []
        self._next: Candidate | None = None
        self._is_exhausted = False
        self._stillborn = 0

    def run(self) -> str:
        """Search; returns why it ended. Workers that are idle then are still there.

        Raises:
            EngineError: If no worker can be started.
        """
        try:
            return self._loop()
        except KeyboardInterrupt:
            return "interrupted"
        finally:
            self._stop_running()

    def workers(self) -> list[int]:
        """Those that are idle, after the end."""
        return list(self._idle)

    def _loop(self) -> str:
        while not (why := self._over()):
            self._think()
            self._give()
            self._staff()
            if not (self._running or self._starting or self._again or self._next):
                return self._why_nothing_is_left()
            events = self._parts.crew.wait(self._patience())
            with uninterrupted():  # what a candidate has come to is kept wholly
                for event in events:
                    self._handle(event)
            self._watch_clocks()
            held = len(self._starting) + len(self._idle) + len(self._running)
            self._parts.watcher.working(len(self._running), held, self._left_s())
        return why

    def _why_nothing_is_left(self) -> str:
        if self._num_begun >= self._limits.trials:
            return "trials"
        return "time" if self._parts.suggester.has_more() else "exhausted"

    def _left_s(self) -> float:
        """Seconds until finishing has to begin."""
        return self._limits.time_s - self._parts.clock() - self._parts.finish_s(self._known())

    def _known(self) -> list[Evaluation]:
        """What is to be finished: until one is done, also those that are as far as a fold."""
        if self.best is not None:
            return self.evaluations
        now, partly = self._parts.clock(), [it for it in self._running.values() if it.whole]
        return [*self.evaluations, *(it.evaluation("stopped", now) for it in partly)]

    def _over(self) -> str:
        if self._left_s() <= 0:
            return "time"
        if not math.isinf(self._limits.cost):
            ledger, now = self._parts.ledger, self._parts.clock()
            finish_s = self._parts.finish_s(self._known())
            if ledger.cost_at(now) + ledger.rate() * finish_s >= self._limits.cost:
                return "cost"
        return ""

    def _patience(self) -> float:
        return max(0.0, min(LOOK_S, self._left_s()))

    def _think(self) -> None:
        """Know whether there is more to try."""
        full = self._num_begun >= self._limits.trials
        if self._next is None and not self._is_exhausted and not full:
            self._next = self._parts.suggester.next(self._left_s())
            self._is_exhausted = self._next is None

    def _staff(self) -> None:
        waiting = len(self._again) + (self._next is not None)
        num = len(self._starting) + len(self._idle) + len(self._running)
        while num < self._fewest or (num < self._most and self._wants_more()):
            worker = self._parts.crew.acquire()
            self._parts.ledger.acquired(worker, self._parts.clock())
            self._starting[worker] = self._parts.clock()
            num += 1
        while self._idle and not waiting and num > self._fewest:
            if not self._is_exhausted and self._num_begun < self._limits.trials:
                break  # it is only not yet known what comes next
            worker = self._idle.pop()
            self._parts.crew.release(worker)
            self._parts.ledger.released(worker, self._parts.clock())
            num -= 1

    def _wants_more(self) -> bool:
        """Whether another worker would have something to do.

        How many candidates are still to come may not be known, so those that start together are
        no more than those that work: some may come in vain, but not most.
        """
        to_try: float = len(self._again)
        if self._next is not None:  # it is not counted as begun yet
            to_come = 1 + self._parts.suggester.most_left()
            to_try += min(self._limits.trials - self._num_begun, to_come)
        at_work, starting = len(self._idle) + len(self._running), len(self._starting)
        return to_try > len(self._idle) + starting and starting < max(START_TOGETHER, at_work)

    def _give(self) -> None:
        while self._idle and (self._again or self._next):
            worker, now = self._idle.pop(0), self._parts.clock()
            if self._again:
                tally = self._again.pop(0)
                tally.begin_again(worker, now)
            else:
                assert self._next is not None
                rungs = self._parts.rungs(self._next.technique)
                tally, self._next = Tally(self._next, rungs, worker, now), None
                self._num_begun += 1
            self._running[worker] = tally
            task = Task(tally.candidate, tally.rungs, self._seed + tally.candidate.number)
            self._parts.crew.give(worker, task)
            self._think()

    def _handle(self, event: Event) -> None:
        if isinstance(event, Ready):
            self._stillborn = 0
            began_s = self._starting.pop(event.worker, self._parts.clock())
            self.start_s = self._parts.clock() - began_s
            self._idle.append(event.worker)
            self._parts.ledger.ready(event.worker, event.host)
        elif isinstance(event, WorkerDied):
            self._died(event)
        elif event.worker not in self._running:
            return  # of a task that is over for us
        elif isinstance(event, RungReached):
            self._rung(self._running[event.worker], event)
        else:
            self._ended(event)

    def _rung(self, tally: Tally, event: RungReached) -> None:
        tally.add(event)
        score = event.reached.score
        self._parts.watcher.rung(event.number, score)
        if not math.isfinite(score.score):
            tally.verdict = "stopped"
        elif tally.is_through:
            self._parts.crew.reply(event.worker, False)
            return
        elif self._lags(tally) and not event.reached.is_settled:
            tally.verdict = "pruned"
        elif tally.left_s() > min(self._left_s(), self._own_left_s(tally)):
            tally.verdict = "stopped"
            tally.notes.append("its other folds would not have ended in time")
        self._parts.crew.reply(event.worker, not tally.verdict)

    def _own_left_s(self, tally: Tally) -> float:
        return tally.began_s + self._limits.candidate_s - self._parts.clock()

    def _lags(self, tally: Tally) -> bool:
        """Whether the candidate is to be given up; the pruner keeps the score in any case."""
        pruner = self._parts.pruner
        return pruner is not None and not pruner.goes_on(tally.candidate, tally.reached)

    def _ended(self, event: TaskDone | TaskFailed) -> None:
        tally = self._running.pop(event.worker)
        tally.spent(event)
        self._idle.append(event.worker)
        self._parts.ledger.worked(event.worker, tally.busy_s)
        now = self._parts.clock()
        if isinstance(event, TaskFailed):
            made = tally.evaluation(
                "failed", now, failure=event.failure, traceback=event.traceback
            )
        elif tally.reached and not math.isfinite(tally.reached[-1].score):
            made = tally.evaluation("failed", now, failure="its score is no number")
        else:
            made = tally.evaluation(tally.verdict or "done", now)
        self._add(made, tally)

    def _died(self, event: WorkerDied) -> None:
        now = self._parts.clock()
        self._parts.ledger.released(event.worker, now, "killed" if event.is_ours else "died")
        if event.worker in self._starting:
            self._starting.pop(event.worker, None)
            self._stillborn += 1
            if self._stillborn >= MAX_STILLBORN:
                self._do_with_those_there_are(event.why)
        if event.worker in self._idle:
            self._idle.remove(event.worker)
        tally = self._running.pop(event.worker, None)
        if tally is None:
            return
        tally.spent(event)
        self._parts.ledger.worked(event.worker, tally.busy_s)
        if not event.is_ours and tally.tries < MAX_TRIES:
            self._parts.watcher.note(
                f"candidate {tally.candidate.number} is tried again: its worker {event.why}"
            )
            self._again.append(tally)
        else:
            failure = f"its worker {event.why}"
            made = tally.evaluation("failed", now, failure=failure, traceback=event.traceback)
            self._add(made, tally)

    def _do_with_those_there_are(self, why: str) -> None:
        held = len(self._idle) + len(self._running)
        if not held:
            raise EngineError(f"workers die before they can begin: {why}")
        self._parts.watcher.note(
            f"no more than {held} worker{'s' if held > 1 else ''} can be had: another {why}"
        )
        self._stillborn, self._most = 0, held
        self._fewest = min(self._fewest, held)

    def _watch_clocks(self) -> None:
        now = self._parts.clock()
        for worker, tally in list(self._running.items()):
            if now - tally.began_s > self._limits.candidate_s:
                why = f"was ended: it took longer than {self._limits.candidate_s:.3g} s"
                self._parts.crew.kill(worker, f"{why} (--candidate-time allows more)")

    def _add(self, made: Evaluation, tally: Tally) -> None:
        self.evaluations.append(made)
        loss = None
        if made.status == "done":
            if self._parts.pruner:
                self._parts.pruner.done(tally.reached)
            if self.best is None or self._loss(made) < self._loss(self.best):
                self.best = made
        elif made.status == "pruned" and tally.whole:
            mean = math.fsum(one.score for one in tally.whole) / len(tally.whole)
            loss = self._sign * mean
        self._parts.suggester.told(made, loss)
        self._parts.keep(made, tally.answers)
        self._parts.watcher.evaluated(made, self.best)

    def _loss(self, one: Evaluation) -> float:
        return math.inf if one.score is None else self._sign * one.score

    def _stop_running(self) -> None:
        now = self._parts.clock()
        for worker in [*self._running, *self._starting]:
            self._parts.crew.kill(worker, "was ended with the search")
            self._parts.ledger.released(worker, now)
        for worker, tally in self._running.items():
            tally.busy_s = max(tally.busy_s, now - tally.began_s)
            self._parts.ledger.worked(worker, tally.busy_s)
            self._add(tally.evaluation("stopped", now), tally)
        for tally in self._again:
            self._add(tally.evaluation("stopped", now), tally)
        self._running, self._again = {}, []
        self._starting = {}
