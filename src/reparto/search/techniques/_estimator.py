"""EstimatorTrainer: any scikit-learn estimator as a trainer.

rows ──► what can be learnt ──► Preparation ──► estimator ──► Answer, all classes in their columns
         (one class, no column that varies: a constant answer)
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search._rows import Answer, Matrix, Rows, Vector
from reparto.search.techniques._base import Setting, Technique, Trainer
from reparto.search.techniques._kept import read_kept, write_kept
from reparto.search.techniques._params import Params
from reparto.search.techniques._prepare import Kind, Preparation
from reparto.search.techniques._spared import Parted, parted
from reparto.search.techniques._threads_held import held_to
from reparto.spec import Domain, Settings, TableFacts, from_plain

_Floats = NDArray[np.float64]


class EstimatorTrainer(Trainer):
    """Trains one estimator. A family says which, and what it wants the rows to be.

    Args:
        settings: All of them, by our names.
        setting: The table, the seed, the threads.
        notes: For people.
    """

    prepares: ClassVar[Kind] = "scaled"
    #: Whether it is trained on a target of mean 0 and deviation 1.
    scales_target: ClassVar[bool] = False
    #: Whether each call of `train` goes on; else each trains anew, on a part of the rows.
    goes_on: ClassVar[bool] = False

    def __init__(
        self, settings: Mapping[str, Any], setting: Setting, notes: Sequence[str] = ()
    ) -> None:
        self.settings, self.facts, self.threads = settings, setting.facts, setting.threads
        own = settings.get("seed")
        self.seed = (setting.seed if own is None else int(own)) % (2**31 - 1)
        self._notes = list(notes)
        self.estimator: Any = None
        self.preparation = Preparation(self._preparation(), self.facts)
        self._constant: Vector | None = None
        self._present: NDArray[np.int64] | None = None
        self._counts: NDArray[np.int64] | None = None  # of those that are present
        self._centre, self._scale = 0.0, 1.0
        self._cached: tuple[Matrix, Vector | None] | None = None
        self._rows: Rows | None = None  # while it trains on them

    # What a family says.

    @abstractmethod
    def make(self, num_rows: int, num_columns: int) -> Any:
        """An estimator that is not trained yet, for so many prepared rows and columns."""

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        """Train ``self.estimator`` until this share; only those that go on have another way."""
        self.estimator.fit(x) if y is None else self.estimator.fit(x, y)

    def answer(self, x: Matrix) -> Vector:
        """What the estimator says: values, clusters, or a column for each class it has seen."""
        if self.facts.is_classification:
            found: Vector = self.estimator.predict_proba(x)
            return found
        values: Vector = self.estimator.predict(x)
        return values

    def weights(self) -> Vector | None:
        """How much each prepared column counts, if that is known."""
        return None

    def _preparation(self) -> Kind:
        return self.prepares

    # What all have in common.

    def train(self, rows: Rows, share: float) -> None:
        """Train so far; see `Trainer.train`."""
        self._rows = rows if self.goes_on else rows.head(share)
        try:
            with held_to(self.threads), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of those that have not converged
                if self.goes_on:
                    self._go_on(rows, share)
                else:
                    self._train_anew(self._rows)
        finally:
            self._rows = None

    def parted(self, num_spared: int) -> Parted | None:
        """The rows that are being trained on, without about so many that are spared.

        None also if a class were lost with whole groups, or with the newest rows.
        """
        assert self._rows is not None, "called while it trains"
        parts, y = parted(self._rows, num_spared), self._rows.y
        if parts is None or y is None or self._counts is None or not self.has_kin:
            return parts
        return parts if len(np.unique(y[parts.kept])) == len(self._counts) else None

    @property
    def has_kin(self) -> bool:
        """Whether rows that are drawn at random would be too much like the others to stop by."""
        rows = self._rows
        return rows is not None and (rows.groups is not None or rows.newest_first)

    def _train_anew(self, rows: Rows) -> None:
        self._constant = None
        prepared = self._prepared(rows)
        if prepared is not None:
            x, y = prepared
            self.estimator = self.make(x.shape[0], x.shape[1])
            self.grow(x, y, 1.0)

    def _go_on(self, rows: Rows, share: float) -> None:
        if self._constant is not None:
            return
        prepared = self._cached or self._prepared(rows)
        if prepared is None:
            return
        x, y = prepared
        if self.estimator is None:
            self.estimator = self.make(x.shape[0], x.shape[1])
        self.grow(x, y, share)
        self._cached = prepared if share < 1.0 else None

    def _prepared(self, rows: Rows) -> tuple[Matrix, Vector | None] | None:
        """Rows and targets as the estimator wants them; None if there is nothing to learn."""
        y = self._target(rows)
        if self._constant is not None:
            return None
        x = self.preparation.fit(rows.x)
        if x.shape[1] == 0:
            self._be_constant(rows)
            return None
        return x, y

    def _target(self, rows: Rows) -> Vector | None:
        if rows.y is None:
            if len(rows) < 2:
                self._constant = np.zeros(1, dtype=np.int64)
            return None
        if self.facts.is_classification:
            present, places, self._counts = np.unique(
                rows.y, return_inverse=True, return_counts=True
            )
            self._present = present.astype(np.int64)
            if len(present) < 2:
                self._be_constant(rows)
            return places.astype(np.int64)
        y = np.asarray(rows.y, dtype=np.float64)
        deviation = float(y.std())
        if len(y) < 2 or deviation == 0.0:
            self._be_constant(rows)
        elif self.scales_target:
            self._centre, self._scale = float(y.mean()), deviation
            y = (y - self._centre) / self._scale
        return y

    def _be_constant(self, rows: Rows) -> None:
        from reparto.search.metrics import constant_answer

        self._constant = constant_answer(self.facts, rows.y, 1).values[0:1]
        self._notes.append("nothing can be learnt from these rows: it answers with a constant")

    def predict(self, x: Matrix) -> Answer:
        """What `x` is; see `Trainer.predict`."""
        num_rows, classes = int(x.shape[0]), self.facts.is_classification
        if self._constant is not None:
            return Answer(np.repeat(self._constant, num_rows, axis=0), are_probabilities=classes)
        if not num_rows:  # scikit-learn refuses them
            none = np.zeros((0, len(self.facts.classes)) if classes else 0)
            return Answer(none, are_probabilities=classes)
        with held_to(self.threads), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = self.answer(self.preparation.transform(x))
        if classes:
            return self._of_all_classes(np.asarray(values, dtype=np.float64))
        if self.facts.domain == "regression" and self.scales_target:
            values = values * self._scale + self._centre
        return Answer(values)

    def _of_all_classes(self, values: _Floats) -> Answer:
        assert self._present is not None
        num_classes = len(self.facts.classes)
        if len(self._present) < num_classes:
            whole = np.zeros((len(values), num_classes))
            whole[:, self._present] = values
            values = whole
        thresholds = self._thresholds(num_classes)
        if thresholds is None:
            return Answer(values, are_probabilities=True)
        # MLlib's rule: the class with the greatest quotient of probability and threshold.
        values = values / thresholds
        return Answer(values / values.sum(axis=1, keepdims=True))

    def _thresholds(self, num_classes: int) -> _Floats | None:
        several, one = self.settings.get("thresholds"), self.settings.get("threshold")
        if several is None and one is None:
            return None
        asked = several if one is None else (1.0 - one, one)
        found: _Floats = np.array(asked, dtype=np.float64)
        assert len(found) == num_classes, "checked before"
        return np.maximum(found, 1e-12)

    def importances(self) -> Sequence[float] | None:
        """Of each column of the table, adding up to one."""
        weights = None if self._constant is not None else self.weights()
        if weights is None:
            return None
        num_columns = self.facts.num_columns
        sources = self.preparation.sources(num_columns)[: len(weights)]
        found = np.bincount(sources, np.abs(weights), minlength=num_columns)
        total = float(found.sum())
        return [float(one) for one in found / total] if total > 0 else None

    def notes(self) -> Sequence[str]:
        """For people."""
        return tuple(dict.fromkeys(self._notes))

    # Kept.

    def state(self) -> dict[str, Any]:
        """All that is needed to answer."""
        return {
            "estimator": None if self._constant is not None else self.estimator,
            "preparation": self.preparation.state,
            "constant": self._constant,
            "present": self._present,
            "centre": self._centre,
            "scale": self._scale,
            "num_columns": self.facts.num_columns,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be what `state` says."""
        self.estimator, self._constant = state["estimator"], state["constant"]
        self.preparation = Preparation(self._preparation(), self.facts, state["preparation"])
        self._present = state["present"]
        self._centre, self._scale = state["centre"], state["scale"]

    def save(self, folder: Path) -> None:
        """Write ``model.skops``."""
        write_kept(self.state(), folder)

    def __getstate__(self) -> dict[str, Any]:
        # Rows are the table's: they are no part of a model and of its size.
        return {**self.__dict__, "_cached": None}


class EstimatorTechnique(Technique):
    """A technique whose trainer is an `EstimatorTrainer`.

    Attributes:
        trains: The class of its trainer.
    """

    trains: ClassVar[type[EstimatorTrainer]]

    @abstractmethod
    def params(self, domain: Domain) -> Params:
        """All that may be set, for a table of this domain."""

    def setting_named(self, name: str, facts: TableFacts) -> str:
        """Our name of a setting; see `Technique.setting_named`."""
        return self.params(facts.domain).named(name)

    def check(self, settings: Settings, facts: TableFacts) -> None:
        """Refuse what cannot be; see `Technique.check`."""
        read = self.params(facts.domain).read(settings)
        if read.get("thresholds") is not None and len(read["thresholds"]) != len(facts.classes):
            raise UsageError(
                f"{self.kind}: thresholds are {len(read['thresholds'])}, and there are "
                f"{len(facts.classes)} classes",
                remedy="give one for each class",
            )
        if read.get("threshold") is not None and facts.domain != "binary":
            raise UsageError(
                f"{self.kind}: a threshold is for two classes, and there are {len(facts.classes)}",
                remedy="give thresholds, one for each class",
            )
        if read.get("threshold") is not None and read.get("thresholds") is not None:
            raise UsageError(
                f"{self.kind} is given threshold and thresholds, which say the same",
                remedy="leave one of them out",
            )
        self.check_read(read, facts)

    def check_read(self, read: Mapping[str, Any], facts: TableFacts) -> None:
        """Refuse settings that are right one by one and not together, or not for this table."""

    def trainer(self, settings: Settings, setting: Setting) -> Trainer:
        """A model that is not trained yet."""
        return self._trainer(settings, setting)

    def _trainer(self, settings: Settings, setting: Setting) -> EstimatorTrainer:
        params = self.params(setting.facts.domain)
        return self.trains(params.read(settings), setting, params.notes(settings))

    def load(self, folder: Path, about: Mapping[str, Any]) -> Trainer:
        """What was saved; executes nothing of it."""
        facts = from_plain(TableFacts, about["facts"])
        made = self._trainer(about["settings"], Setting(facts=facts))
        made.restore(read_kept(folder))
        return made
