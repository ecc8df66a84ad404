"""A crew that plays on a clock of its own: what a conductor does can be told to the second."""

import heapq
import itertools

from reparto.search._bill import Ledger
from reparto.search._conduct import Conductor, Limits, Parts
from reparto.search._crew import (
    Crew,
    Ready,
    RungReached,
    Task,
    TaskDone,
    TaskFailed,
    WorkerDied,
)
from reparto.search._watch import SearchWatcher
from reparto.search._work import Reached
from reparto.spec import Rung, RungScore


class Lines(SearchWatcher):
    def __init__(self):
        self.notes, self.evaluations = [], []

    def note(self, text):
        self.notes.append(text)

    def evaluated(self, evaluation, best):
        self.evaluations.append(evaluation)


class Played:
    """What a candidate does: seconds a rung, its scores, and how it ends otherwise."""

    def __init__(self, seconds=1.0, scores=(0.5,), fails="", dies="", hangs=False):
        self.seconds, self.scores = seconds, scores
        self.fails, self.dies, self.hangs = fails, dies, hangs


class ScriptedCrew(Crew):
    def __init__(self, play, max_workers=2, start_s=0.0, stillborn=False):
        self.play, self.max_workers, self.start_s = play, max_workers, start_s
        self.stillborn = stillborn
        self.now_s = 0.0
        self._order, self._due = itertools.count(), []
        self._numbers = itertools.count()
        self._doing, self._dead = {}, set()
        self.held, self.most_held, self.given = set(), 0, []

    def clock(self):
        return self.now_s

    def _later(self, seconds, event):
        heapq.heappush(self._due, (self.now_s + seconds, next(self._order), event))

    def acquire(self):
        worker = next(self._numbers)
        self.held.add(worker)
        self.most_held = max(self.most_held, len(self.held))
        event = WorkerDied(worker, None, "could not begin") if self.stillborn else Ready(worker)
        self._later(self.start_s, event)
        return worker

    def give(self, worker, task):
        assert isinstance(task, Task)
        assert worker in self.held
        self.given.append(task.candidate)
        played = self.play(task.candidate, len(self.given))
        self._doing[worker] = [task, played, 0, self.now_s]
        self._go_on(worker)

    def _go_on(self, worker):
        task, played, index, began_s = self._doing[worker]
        number = task.candidate.number
        if played.hangs:
            return
        spent = self.now_s - began_s + played.seconds
        if played.fails:
            self._later(played.seconds, TaskFailed(worker, number, played.fails, busy_s=spent))
        elif played.dies:
            self._later(played.seconds, WorkerDied(worker, number, played.dies, busy_s=spent))
        else:
            score = played.scores[index % len(played.scores)]
            reached = Reached(RungScore(rung=task.rungs[index], score=score, fit_s=played.seconds))
            self._later(played.seconds, RungReached(worker, number, reached, busy_s=spent))

    def reply(self, worker, go_on):
        task, _, index, began_s = self._doing[worker]
        if go_on and index + 1 < len(task.rungs):
            self._doing[worker][2] += 1
            self._go_on(worker)
        else:
            done = TaskDone(worker, task.candidate.number, busy_s=self.now_s - began_s)
            self._later(0.0, done)

    def wait(self, timeout_s):
        end_s = self.now_s + timeout_s
        while self._due and self._due[0][0] <= end_s:
            self.now_s, _, event = heapq.heappop(self._due)
            if event.worker in self._dead:
                continue
            if isinstance(event, WorkerDied):
                self._dead.add(event.worker)
                self.held.discard(event.worker)
            return [event]
        self.now_s = end_s
        return []

    def release(self, worker):
        self.held.remove(worker)

    def kill(self, worker, why):
        self.held.discard(worker)
        task = self._doing.get(worker)
        self._dead.discard(worker)
        number = task[0].candidate.number if task else None
        self._due = [one for one in self._due if one[2].worker != worker]
        self._later(0.0, WorkerDied(worker, number, why, is_ours=True))

    def close(self):
        self.held.clear()


def conducted(
    crew,
    suggester,
    limits=None,
    *,
    pruner=None,
    folds=1,
    finish_s=lambda _: 0.0,
    price=0.0,
    min_workers=0,
    max_workers=2,
    higher_is_better=True,
    watcher=None,
):
    """Why it ended, the conductor, and the ledger."""
    ledger = Ledger(price)
    parts = Parts(
        crew=crew,
        suggester=suggester,
        pruner=pruner,
        rungs=lambda kind: tuple(Rung(fold=fold) for fold in range(folds)),
        ledger=ledger,
        clock=crew.clock,
        finish_s=finish_s,
        keep=lambda evaluation, answers: None,
        watcher=watcher or Lines(),
    )
    conductor = Conductor(
        parts,
        limits or Limits(),
        min_workers=min_workers,
        max_workers=max_workers,
        seed=0,
        higher_is_better=higher_is_better,
    )
    return conductor.run(), conductor, ledger
