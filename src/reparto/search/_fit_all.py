"""Several candidates, trained once more by the workers of a search, until it is too late."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from reparto.search._bill import Ledger
from reparto.search._crew import Crew, Event, FitTask, Ready, TaskDone, TaskFailed, WorkerDied
from reparto.search._work import Fitted
from reparto.spec import Candidate

LOOK_S = 0.2
#: So many workers may die before they are ready.
MAX_STILLBORN = 3


class FitAll:
    """Trains candidates and saves them, one folder each.

    Args:
        crew: The workers.
        idle: Those that are.
        max_workers: At most.
        ledger: Who is held, who works.
        clock: Seconds since the search began.
        seed: Of the search.
    """

    def __init__(
        self,
        crew: Crew,
        idle: Sequence[int],
        max_workers: int,
        ledger: Ledger,
        clock: Callable[[], float],
        seed: int,
    ) -> None:
        self._crew, self._most = crew, max_workers
        self._ledger, self._clock, self._seed = ledger, clock, seed
        self._idle, self._starting = list(idle), set[int]()
        self._busy: dict[int, Candidate] = {}
        self._stillborn = 0
        self.failures: dict[int, str] = {}

    def run(
        self, candidates: Sequence[Candidate], folder: Path, end_s: float
    ) -> dict[int, Fitted]:
        """Train these, the most important first.

        Args:
            candidates: Which.
            folder: Each gets a folder in it, named by its number.
            end_s: Since the search began; what is not done then is given up.

        Returns:
            What was trained, by number; ``failures`` says why others were not.
        """
        waiting, done = list(candidates), dict[int, Fitted]()
        while (waiting or self._busy) and self._clock() < end_s:
            self._staff(len(waiting))
            if not (self._idle or self._starting or self._busy):
                break
            while self._idle and waiting:
                self._give(self._idle.pop(0), waiting.pop(0), folder)
            for event in self._crew.wait(max(0.0, min(LOOK_S, end_s - self._clock()))):
                self._handle(event, done)
        for worker, candidate in list(self._busy.items()):
            self._crew.kill(worker, "was ended: there is no time left")
            self._ledger.released(worker, self._clock(), "killed")
            self.failures[candidate.number] = "there was no time to train it on all rows"
        for candidate in waiting:
            self.failures.setdefault(candidate.number, "there was no time to train it on all rows")
        self._busy = {}
        return done

    def release(self) -> None:
        """Let go of all that are left."""
        for worker in [*self._idle, *self._starting]:
            if worker in self._idle:
                self._crew.release(worker)
            else:
                self._crew.kill(worker, "was not needed any more")
            self._ledger.released(worker, self._clock())
        self._idle, self._starting = [], set()

    def _staff(self, num_waiting: int) -> None:
        held = len(self._idle) + len(self._starting) + len(self._busy)
        wanted = num_waiting > len(self._idle) + len(self._starting)
        if wanted and held < self._most and self._stillborn < MAX_STILLBORN:
            worker = self._crew.acquire()
            self._ledger.acquired(worker, self._clock())
            self._starting.add(worker)

    def _give(self, worker: int, candidate: Candidate, folder: Path) -> None:
        own = folder / str(candidate.number)
        own.mkdir(parents=True, exist_ok=True)
        self._busy[worker] = candidate
        self._crew.give(worker, FitTask(candidate, str(own), self._seed + candidate.number))

    def _handle(self, event: Event, done: dict[int, Fitted]) -> None:
        if isinstance(event, Ready):
            self._starting.discard(event.worker)
            self._idle.append(event.worker)
            self._ledger.ready(event.worker, event.host)
            return
        candidate = self._busy.pop(event.worker, None)
        if isinstance(event, WorkerDied):
            self._ledger.released(event.worker, self._clock(), "died")
            self._stillborn += event.worker in self._starting
            self._starting.discard(event.worker)
            if event.worker in self._idle:
                self._idle.remove(event.worker)
            if candidate is not None:
                self.failures[candidate.number] = f"its worker {event.why}"
        elif candidate is not None and isinstance(event, TaskDone | TaskFailed):
            self._idle.append(event.worker)
            self._ledger.worked(event.worker, event.busy_s)
            if isinstance(event, TaskFailed):
                self.failures[candidate.number] = event.failure
            elif event.fitted is not None:
                done[candidate.number] = event.fitted
