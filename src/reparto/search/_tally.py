"""Tally: what is known of a candidate while it is tried, and the evaluation that becomes of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from reparto.search._crew import RungReached, TaskDone, TaskFailed, WorkerDied
from reparto.search._rows import Answer
from reparto.spec import Candidate, Evaluation, Rung, RungScore


@dataclass
class Tally:
    """A candidate that a worker has, or will have again."""

    candidate: Candidate
    rungs: tuple[Rung, ...]
    worker: int
    began_s: float
    tries: int = 1
    reached: list[RungScore] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    busy_s: float = 0.0
    lost_s: float = 0.0
    peak_bytes: int = 0
    size_bytes: int = 0
    verdict: Literal["", "pruned", "stopped"] = ""

    def begin_again(self, worker: int, now_s: float) -> None:
        """Another worker has it, from the beginning."""
        self.worker, self.began_s, self.tries = worker, now_s, self.tries + 1
        self.reached, self.answers, self.verdict = [], [], ""
        self.lost_s, self.busy_s = self.lost_s + self.busy_s, 0.0

    def add(self, event: RungReached) -> None:
        """A rung more."""
        reached = event.reached
        self.reached.append(reached.score)
        if reached.answer is not None and reached.score.rung.share >= 1.0:
            self.answers.append(reached.answer)
        self.size_bytes = max(self.size_bytes, reached.size_bytes)
        self.notes += [note for note in reached.notes if note not in self.notes]
        self.spent(event)

    def spent(self, event: RungReached | TaskDone | TaskFailed | WorkerDied) -> None:
        """What it has taken until now."""
        self.busy_s = max(self.busy_s, event.busy_s)
        self.peak_bytes = max(self.peak_bytes, event.peak_bytes)

    @property
    def is_through(self) -> bool:
        """Whether all rungs are reached."""
        return len(self.reached) == len(self.rungs)

    @property
    def whole(self) -> list[RungScore]:
        """Of the folds that were trained on wholly."""
        return [one for one in self.reached if one.rung.share >= 1.0]

    @property
    def predict_row_s(self) -> float:
        """Seconds of predicting one row, in the batch of a fold; 0 if unknown.

        One fold may have waited for a library to be loaded: the middle one of them counts.
        """
        told = [one for one in self.whole or self.reached[-1:] if one.num_rows]
        return statistics.median(one.predict_s / one.num_rows for one in told) if told else 0.0

    def left_s(self) -> float:
        """About how long the rest takes, by what the rungs until now took; 0 if unknown."""
        if not self.whole:
            return 0.0
        mean = statistics.fmean(one.fit_s + one.predict_s for one in self.whole)
        first = sum(one.fit_s + one.predict_s for one in self.reached if one.rung.fold == 0)
        per_fold = max(mean, first) if len(self.whole) == 1 else mean
        return per_fold * (len(self.rungs) - len(self.reached))

    def evaluation(
        self,
        status: Literal["done", "pruned", "failed", "stopped"],
        now_s: float,
        *,
        failure: str = "",
        traceback: str = "",
    ) -> Evaluation:
        """What is known of it, at its end; only one that is done has a score."""
        whole = self.whole if status == "done" else []
        values = [one.score for one in whole]
        return Evaluation(
            candidate=self.candidate,
            status=status,
            rungs=tuple(self.reached),
            score=statistics.fmean(values) if values else None,
            spread=statistics.stdev(values) if len(values) > 1 else None,
            scores=mean_scores(self.whole),
            failure=failure,
            traceback=traceback,
            busy_s=self.lost_s + self.busy_s,
            began_s=self.began_s,
            ended_s=now_s,
            worker=self.worker,
            peak_bytes=self.peak_bytes,
            size_bytes=self.size_bytes,
            predict_row_s=self.predict_row_s,
            notes=tuple(self.notes),
        )


def mean_scores(folds: Sequence[RungScore]) -> Mapping[str, float]:
    """Means over folds, of metrics that all of them have."""
    if not folds:
        return {}
    names = [name for name in folds[0].scores if all(name in one.scores for one in folds)]
    means = {name: statistics.fmean(one.scores[name] for one in folds) for name in names}
    return {name: value for name, value in means.items() if math.isfinite(value)}
