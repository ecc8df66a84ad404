"""Work and Attempt: what a worker of a search does, whatever is searched and wherever it runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from reparto.search._rows import Answer
from reparto.spec import Candidate, Rung, RungScore


@dataclass(frozen=True)
class Reached:
    """What a worker knows when it has reached a rung.

    Attributes:
        score: Of this rung.
        answer: For the fold's test rows; None where there is no such thing, and below share 1.0.
        size_bytes: Of the model, roughly; 0 if unknown.
        notes: For people.
        is_settled: Whether to give up here would save nothing, or nothing new is known: the
            candidate then goes on, whatever its score.
    """

    score: RungScore
    answer: Answer | None = None
    size_bytes: int = 0
    notes: tuple[str, ...] = ()
    is_settled: bool = False


@dataclass(frozen=True)
class Fitted:
    """A candidate that was trained once more and saved.

    Attributes:
        folder: Where its files lie.
        fit_s: Seconds of training.
        size_bytes: Of its files.
        predict_row_s: Seconds of predicting one row, in a batch.
        test_answer: For the rows of the test table; None if there is none.
        test_scores: Of the test table, by every metric, where the table is not on this machine;
            `test_answer` is then for a sample of it.
        importances: Of each column, adding up to one; None if the model does not know them.
        clusters: Of a clustering, for a sample of all rows.
        lost: What the metric loses when each column is shuffled; None if that took too long.
    """

    folder: str
    fit_s: float = 0.0
    size_bytes: int = 0
    predict_row_s: float = 0.0
    test_answer: Answer | None = None
    test_scores: Mapping[str, float] = field(default_factory=dict)
    importances: tuple[float, ...] | None = None
    clusters: Answer | None = None
    lost: tuple[float, ...] | None = None


class Attempt(ABC):
    """One candidate being tried by one worker."""

    @abstractmethod
    def reach(self, rung: Rung) -> Reached:
        """Go on to this rung. Called with the rungs of the task, in order, as long as it goes on.

        Raises:
            Exception: Anything; the candidate has then failed.
        """

    def close(self) -> None:
        """Let go of what it holds; called once, whether it was given up, failed or done."""


class Work(ABC):
    """What a worker does. It is pickled to where the worker is; `open` is called there, once.

    Call order: `load`, perhaps in another process, of which the worker is a fork; `open`; any
    number of attempts and fits, one at a time; `close`. A crew of threads (a script, Spark) opens
    one `Work` for each worker too.
    """

    def load(self) -> None:
        """Import what is heavy. Nothing is computed and no thread started: it may be forked."""

    @abstractmethod
    def open(self, threads: int) -> None:
        """Get ready: attach to data. So many threads may be used."""

    @abstractmethod
    def attempt(self, candidate: Candidate, seed: int) -> Attempt:
        """Begin with a candidate."""

    @abstractmethod
    def fit(self, candidate: Candidate, seed: int, folder: str) -> Fitted:
        """Train a candidate on all rows, and save it in the folder, which exists.

        Args:
            candidate: Which one.
            seed: Of all that is random.
            folder: Where its files go.
        """

    def close(self) -> None:
        """Let go of all; nothing is asked of it afterwards."""

    def packed(self) -> tuple[Work, Mapping[str, NDArray[Any]]]:
        """The same for another host: all but its large data, and those, by name."""
        return self, {}

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take in the data, on another host; called before `load`. They cannot be written to."""

    def stop(self) -> None:
        """End the attempt that runs in another thread, soon; `reach` may then raise anything.

        Only crews of threads call it, and let nothing else be done afterwards; what was just
        about to begin shall end at once too. Processes are killed instead.
        """
