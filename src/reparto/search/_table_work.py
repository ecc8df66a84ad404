"""TableWork: a worker that trains techniques on the folds of a shared table."""

from __future__ import annotations

import importlib
import math
import pickle
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.search._board import Board, Seen
from reparto.search._importances import shuffled
from reparto.search._rows import Answer, Rows
from reparto.search._work import Attempt, Fitted, Reached, Work
from reparto.search.metrics import scores_of
from reparto.search.techniques import technique_named
from reparto.search.techniques._base import Setting, Trainer
from reparto.spec import Candidate, Rung, RungScore

#: Of scikit-learn: the first takes half a second, all others together less.
_FAMILIES = ("ensemble", "linear_model", "svm", "neighbors", "neural_network", "naive_bayes")
#: Of others, by technique.
_LIBRARIES = (("lightgbm", "lightgbm"), ("network", "torch"))
_SAVING = "reparto.search.techniques._skops"

#: Finding out what each column matters takes so long at most.
IMPORTANCES_S = 2.0


def modules_for(kinds: Sequence[str]) -> tuple[str, ...]:
    """What techniques import, and what saving a model does."""
    found = [*(f"sklearn.{name}" for name in _FAMILIES), _SAVING]
    found += [name for kind, name in _LIBRARIES if kind in kinds]
    return tuple(found)


class TableWork(Work):
    """Trains and tests candidates.

    Args:
        board: The table, laid out.
        metric: By which candidates are ranked.
        kinds: Of techniques whose libraries are imported before any worker begins.
    """

    def __init__(self, board: Board, metric: str, kinds: Sequence[str] = ()) -> None:
        self._board, self._metric, self._kinds = board, metric, tuple(kinds)
        self._threads = 1
        self._seen: Seen | None = None

    def load(self) -> None:
        """Import libraries."""
        for name in modules_for(self._kinds):
            importlib.import_module(name)

    def packed(self) -> tuple[Work, Mapping[str, NDArray[Any]]]:
        """Without the table's memory, which is this machine's, and what is in it."""
        arrays = self._board.arrays()
        bare = Board.of_arrays(self._board.plan, {})
        return TableWork(bare, self._metric, self._kinds), arrays

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take in the table."""
        self._board = Board.of_arrays(self._board.plan, arrays)

    def open(self, threads: int) -> None:
        """Attach to the table."""
        self._threads = threads
        self._seen = self._board.seen()

    def attempt(self, candidate: Candidate, seed: int) -> Attempt:
        """Begin with a candidate."""
        return _TableAttempt(self._table, candidate, seed, self._threads, self._metric)

    def fit(self, candidate: Candidate, seed: int, folder: str) -> Fitted:
        """Train once more, save, and answer for the test table."""
        seen = self._table
        trainer = _trainer(seen, candidate, seed, self._threads)
        began = time.monotonic()
        trainer.train(seen.all(), 1.0)
        fit_s = time.monotonic() - began
        trainer.save(Path(folder))
        sample = seen.all().head(min(1.0, 1000 / max(1, len(seen.all()))))
        began = time.monotonic()
        sample_answer = checked(trainer.predict(sample.x))
        predict_s = time.monotonic() - began
        importances = trainer.importances()
        most_s = min(IMPORTANCES_S, 0.4 + 0.2 * fit_s)
        return Fitted(
            folder=folder,
            fit_s=fit_s,
            size_bytes=sum(one.stat().st_size for one in Path(folder).rglob("*") if one.is_file()),
            predict_row_s=predict_s / len(sample),
            test_answer=None if seen.test is None else checked(trainer.predict(seen.test.x)),
            importances=None if importances is None else tuple(map(float, importances)),
            clusters=sample_answer if seen.facts.domain == "clustering" else None,
            lost=shuffled(trainer.predict, seen, self._metric, most_s),
        )

    def close(self) -> None:
        """Let go of the table."""
        self._seen = None

    @property
    def _table(self) -> Seen:
        assert self._seen is not None, "open() comes first"
        return self._seen


class _TableAttempt(Attempt):
    def __init__(
        self, seen: Seen, candidate: Candidate, seed: int, threads: int, metric: str
    ) -> None:
        self._seen, self._candidate = seen, candidate
        self._seed, self._threads, self._metric = seed, threads, metric
        self._fold, self._trainer = -1, None
        self._size_bytes = 0

    _trainer: Trainer | None

    def reach(self, rung: Rung) -> Reached:
        if rung.fold != self._fold or self._trainer is None:
            self._trainer = None  # the one before is let go of first
            self._trainer = _trainer(self._seen, self._candidate, self._seed, self._threads)
            self._fold = rung.fold
        began = time.monotonic()
        self._trainer.train(self._seen.train(rung.fold), rung.share)
        fit_s = time.monotonic() - began
        tested = self._seen.tested(rung.fold)
        began = time.monotonic()
        answer = checked(self._trainer.predict(tested.x))
        predict_s = time.monotonic() - began
        scores = scores_of(self._seen.facts, answer, tested.y, x=tested.x, seed=self._seed)
        if rung.share >= 1.0 and not self._size_bytes:
            self._size_bytes = _size_of(self._trainer)
        score = RungScore(
            rung=rung,
            score=self._score(scores, answer, tested),
            scores=scores,
            fit_s=fit_s,
            predict_s=predict_s,
            num_rows=len(tested),
        )
        whole = rung.share >= 1.0 and tested.y is not None
        return Reached(
            score=score,
            answer=_light(answer) if whole else None,
            size_bytes=self._size_bytes,
            notes=tuple(self._trainer.notes()),
        )

    def _score(self, scores: dict[str, float], answer: Answer, tested: Rows) -> float:
        value = scores.get(self._metric, math.nan)
        if math.isfinite(value):
            return value
        if not answer.are_probabilities and answer.values.ndim == 2:
            raise ValueError(
                f"{self._metric} wants probabilities, and {self._candidate.technique} has none"
            )
        raise ValueError(
            f"{self._metric} is not defined on fold {self._fold} ({len(tested)} rows are tested)"
        )

    def close(self) -> None:
        self._trainer = None


def checked(answer: Answer) -> Answer:
    """The same answer.

    Raises:
        ValueError: If some of it is no number.
    """
    if not np.all(np.isfinite(answer.values)):
        count = int(np.sum(~np.isfinite(answer.values)))
        raise ValueError(f"{count} of its {answer.values.size} predictions are no numbers")
    return answer


def _trainer(seen: Seen, candidate: Candidate, seed: int, threads: int) -> Trainer:
    technique = technique_named(candidate.technique)
    setting = Setting(facts=seen.facts, seed=seed, threads=threads)
    return technique.trainer(candidate.settings, setting)


def _light(answer: Answer) -> Answer:
    """Probabilities need no more than half of the digits, and travel to another process."""
    if answer.values.dtype != np.float64 or answer.values.ndim != 2:
        return answer
    return Answer(answer.values.astype(np.float32), answer.are_probabilities)


class _Counter:
    """A file that only counts what is written to it."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def write(self, part: Any) -> int:
        num_bytes = memoryview(part).nbytes  # of arrays, buffers come that have no length
        self.num_bytes += num_bytes
        return num_bytes


def _size_of(trainer: Trainer) -> int:
    """About what it takes to keep it: nothing is read back from this."""
    counter = _Counter()
    try:
        pickle.Pickler(counter, protocol=5).dump(trainer)
    except (pickle.PicklingError, TypeError, AttributeError):  # it has something that cannot be
        return 0
    return counter.num_bytes
