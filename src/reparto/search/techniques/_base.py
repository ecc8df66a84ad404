"""Technique and Trainer: what a way of learning must be able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from reparto.errors import UsageError
from reparto.search._rows import Answer, Matrix, Rows
from reparto.search._space import Space
from reparto.spec import Domain, Settings, TableFacts


@dataclass(frozen=True)
class Setting:
    """What a trainer is built from, beside its own settings.

    Attributes:
        facts: Of the table.
        seed: Of all that is random.
        threads: That it may use.
    """

    facts: TableFacts
    seed: int = 0
    threads: int = 1


class Trainer(ABC):
    """One model being trained, in one worker, by one thread.

    Call order: `train` with growing shares, the last of them 1.0; after each, `predict` any number
    of times; at the end perhaps `save`. All preprocessing is the trainer's own and is fitted on
    the rows that it is trained on, never on others. Rows are not written to.
    """

    @abstractmethod
    def train(self, rows: Rows, share: float) -> None:
        """Train so far.

        Args:
            rows: All rows of the fold's training part; the same at each call.
            share: Of the whole training. One that has iterations goes on from where it is until
                this share of them is done; one that has none is trained anew on
                ``rows.head(share)``.

        Raises:
            Exception: Anything; the candidate has then failed, and the search goes on.
        """

    @abstractmethod
    def predict(self, x: Matrix) -> Answer:
        """Say what `x` is. Classes are columns in the order of ``facts.classes``, all of them."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write files into the folder, which exists, from which `Technique.load` makes it again.

        Nothing is written that executes code when it is read: skops, safetensors, JSON.
        """

    def importances(self) -> Sequence[float] | None:
        """Of each column, adding up to one, if the model knows them without being asked more."""
        return None

    def notes(self) -> Sequence[str]:
        """What people should know: settings that change nothing here, rows that teach nothing."""
        return ()


class Technique(ABC):
    """A way of learning: one instance each in `techniques.TECHNIQUES`, without state.

    To add one: a subclass in a file of its family, and a line in ``techniques/__init__.py``.
    Imports of heavy libraries stand inside functions.

    Attributes:
        kind: Its name on the command line, in tables and files: ``random-forest``.
        domains: That it suits.
        resource: What `Trainer.train`'s share means, for people.
        slow_beyond_rows: With more rows than that it is left out unless it is asked for by name
            (kernels, neighbours); None for never.
        takes_sparse: Whether it trains on sparse matrices.
        is_modern: False for those that are there for system D's requests and have a better
            relative; they are searched only if they are asked for.
        needs: A package beside scikit-learn, and the extra of reparto that brings it.
    """

    kind: ClassVar[str]
    domains: ClassVar[tuple[Domain, ...]]
    resource: ClassVar[str] = "rows"
    slow_beyond_rows: ClassVar[int | None] = None
    takes_sparse: ClassVar[bool] = False
    is_modern: ClassVar[bool] = True
    needs: ClassVar[tuple[()] | tuple[str, str]] = ()

    @abstractmethod
    def space(self, facts: TableFacts) -> Space:
        """What settings there are, with the range in which good ones are sought."""

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Settings that are known to do well on many data sets, the best first; tried first.

        Settings that are not named have the library's default. At least one, cheap enough to be
        an answer within seconds.
        """
        return ({},)

    def setting_named(self, name: str, facts: TableFacts) -> str:
        """Our name of a setting that a request may call otherwise: ``maxDepth``, ``max-depth``.

        Raises:
            UsageError: If there is none; tells those that are nearly called so.
        """
        known = self.space(facts)
        if name in known:
            return name
        raise UsageError(
            f"{self.kind} has no setting {name!r}", remedy=f"it has {', '.join(known)}"
        )

    def check(self, settings: Settings, facts: TableFacts) -> None:
        """Refuse settings that cannot be, before anything runs.

        Raises:
            UsageError: Says which setting, why, and what it may be.
        """

    @abstractmethod
    def trainer(self, settings: Settings, setting: Setting) -> Trainer:
        """A model that is not trained yet."""

    @abstractmethod
    def load(self, folder: Path, about: Mapping[str, Any]) -> Trainer:
        """What `Trainer.save` wrote. Executes nothing of the files.

        Args:
            folder: Where it lies.
            about: What ``model.json`` says of it: ``settings``, ``facts`` as plain values.
        """
