"""Model: what a search has found, as it lies in a folder. Reading it executes nothing of it.

model/  model.json     what it is: facts of the table, metric, members and their weights
        0/ 1/ …        one folder a member, written by its technique
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reparto.errors import UsageError
from reparto.search._rows import Answer, Matrix, Rows
from reparto.spec import Candidate, TableFacts, from_plain, to_plain

FORMAT = 1
_NAME = "model.json"


@dataclass(frozen=True)
class Member:
    """A trained technique, and how much its answer counts.

    Attributes:
        candidate: What it is.
        folder: Relative to the model's.
        weight: All weights add up to one.
    """

    candidate: Candidate
    folder: str
    weight: float = 1.0


@dataclass(frozen=True)
class About:
    """What ``model.json`` says.

    Attributes:
        facts: Of the table that it was trained on.
        metric: By which it was chosen.
        candidate: What it is; of an ensemble, its members are among the settings.
        members: One, or those of an ensemble.
        made_by: Versions.
    """

    facts: TableFacts
    metric: str
    candidate: Candidate
    members: tuple[Member, ...]
    made_by: Mapping[str, str] | None = None


def write_about(about: About, folder: Path) -> None:
    """Write ``model.json``."""
    plain = {"format": FORMAT, **to_plain(about)}
    (folder / _NAME).write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def read_about(folder: Path) -> About:
    """Read ``model.json``.

    Raises:
        UsageError: If it is not there, or of another kind.
    """
    path = folder / _NAME
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(
            f"{folder}: there is no {_NAME}",
            remedy="name the folder of a search that has found a model, or its folder model/",
        ) from error
    except ValueError as error:
        raise UsageError(f"{path}: {error}", remedy="it was changed; search again") from error
    version = plain.pop("format", None) if isinstance(plain, dict) else None
    if version != FORMAT:
        raise UsageError(
            f"{path} is of format {version}, and this reparto reads {FORMAT}",
            remedy="use the reparto that has made it",
        )
    return from_plain(About, plain)


class Model:
    """What a search has found, ready to answer.

    Args:
        folder: Of the model, or of the search that has found it.

    Raises:
        UsageError: If there is none.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / _NAME).exists() and (folder / "model" / _NAME).exists():
            folder = folder / "model"
        self.about, self.folder = read_about(folder), folder
        self._trainers: list[Any] | None = None

    @property
    def facts(self) -> TableFacts:
        """Of the table that it was trained on."""
        return self.about.facts

    @property
    def metric(self) -> str:
        """By which it was chosen."""
        return self.about.metric

    def read(self, path: str | Path, *, with_target: bool = False) -> Rows:
        """Rows of a table with the same columns, as `predict` wants them."""
        from reparto.search._tables import read_rows

        return read_rows(path, self.facts, with_target=with_target)

    def predict(self, rows: Rows | Matrix) -> Answer:
        """What it says of these rows."""
        from reparto.search._ensemble import mixed

        x = rows.x if isinstance(rows, Rows) else rows
        members = self.about.members
        answers = [trainer.predict(x) for trainer in self._loaded()]
        if len(answers) == 1:
            only: Answer = answers[0]
            return only
        return mixed(answers, [one.weight for one in members])

    def _loaded(self) -> Sequence[Any]:
        if self._trainers is None:
            from reparto.search._spark import is_brought, spark_technique_named
            from reparto.search.techniques import Technique, technique_named

            about = {"facts": to_plain(self.facts)}
            self._trainers = []
            for one in self.about.members:
                folder, name = self.folder / one.folder, one.candidate.technique
                # MLlib's algorithms are called as ours are; what was brought home says what it is.
                technique: Technique = (
                    spark_technique_named(name) if is_brought(folder) else technique_named(name)
                )
                settings = dict(one.candidate.settings)
                self._trainers.append(technique.load(folder, {"settings": settings, **about}))
        return self._trainers


def load(folder: str | Path) -> Model:
    """Read what a search has found; nothing of the files is executed.

    Args:
        folder: Of the search, or its folder ``model/``.

    Raises:
        UsageError: If there is none.
    """
    return Model(Path(folder))
