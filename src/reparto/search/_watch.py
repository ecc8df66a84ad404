"""SearchWatcher: what a search tells while it goes on."""

from __future__ import annotations

from reparto.spec import Evaluation, RungScore, SearchResult, TableFacts


class SearchWatcher:
    """Hears of a search; does nothing with it. Called by one thread."""

    def read(self, facts: TableFacts, techniques: tuple[str, ...], split: str) -> None:
        """The table was read, and what will be searched is known."""

    def rung(self, number: int, score: RungScore) -> None:
        """A part of the work on candidate `number` is done."""

    def working(self, busy: int, held: int, left_s: float) -> None:
        """So many workers of those that are held are busy; heard several times a second."""

    def evaluated(self, evaluation: Evaluation, best: Evaluation | None) -> None:
        """A candidate has ended; `best` is the best one so far."""

    def finishing(self, text: str) -> None:
        """The search is over; `text` says what is done now: training the best one on all rows."""

    def note(self, text: str) -> None:
        """Something that people should know."""

    def ended(self, result: SearchResult) -> None:
        """It is over."""
