"""Network: a network for tables, trained in parts with the library that reparto itself offers.

``model.safetensors`` holds its weights and all that the preparation has learnt, ``network.json``
how large it is; reading them executes nothing.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reparto.errors import UsageError
from reparto.search._rows import Matrix, Vector
from reparto.search._space import Choice, Float, Int, Space
from reparto.search.techniques._base import Setting
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._params import Number, OneOf, Param, Params, Whole
from reparto.search.techniques._prepare import Preparation
from reparto.spec import Domain, Settings, TableFacts

WEIGHTS, ABOUT = "model.safetensors", "network.json"
#: If nobody says how long it is trained: so many rows are looked at, in so many epochs.
_ROWS_IN_ALL, _FEWEST_EPOCHS, _MOST_EPOCHS = 2_000_000, 20, 200
#: So many frequencies are learnt for each number.
_FREQUENCIES = 12
#: With so few rows none are held out: training ends after its epochs.
FEWEST_TO_HOLD = 60
#: Held out at most.
MOST_HELD = 5000


class _NetworkTrainer(EstimatorTrainer):
    prepares = "shaped"
    scales_target = True
    goes_on = True

    def make(self, num_rows: int, num_columns: int) -> Any:
        from reparto.search.techniques._network_module import Shape
        from reparto.search.techniques._network_training import Course, Training

        settings = self.settings
        classes = self.facts.is_classification
        numbers = len(self.preparation.state["kept"])
        has_waves = settings["embedding"] == "periodic" and numbers > 0
        shape = Shape(
            num_inputs=num_columns,
            num_numbers=numbers,
            num_outputs=len(self._present) if classes and self._present is not None else 1,
            width=settings["width"],
            depth=settings["depth"],
            dropout=settings["dropout"],
            members=settings["members"],
            frequencies=_FREQUENCIES if has_waves else 0,
        )
        course = Course(
            epochs=settings["epochs"] or _epochs_for(num_rows),
            batch_rows=settings["batch_size"] or _batch_for(num_rows),
            learning_rate=settings["learning_rate"],
            weight_decay=settings["weight_decay"],
            patience=settings["patience"],
            held=self._num_held(num_rows),
            seed=self.seed,
        )
        return Training(shape, course)

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        from reparto.search.techniques._network_training import threads_held

        assert y is not None, "a network has a target"
        rows = _single(x)
        targets = y if self.facts.is_classification else y.astype(np.float32)
        if (order := self._held_first()) is not None:
            rows, targets = rows[order], targets[order]
        until = max(1, round(share * self.estimator.course.epochs))
        if self.settings["workers"] > 1:
            from reparto.search.techniques._network_run import go_on_shared_out

            go_on_shared_out(
                self.estimator,
                rows,
                targets,
                until,
                workers=self.settings["workers"],
                threads=self.threads,
            )
        else:
            with threads_held(self.threads):
                self.estimator.go_on(rows, targets, until)

    def _num_held(self, num_rows: int) -> int:
        """So many are held out to see when to stop; of groups, whole ones."""
        if num_rows < FEWEST_TO_HOLD:
            return 0
        wanted: int = min(MOST_HELD, round(self.settings["held"] * num_rows))
        if self._rows is None or self._rows.groups is None:
            return wanted  # the first of them are a sample of all, or the newest
        parts = self.parted(wanted)
        return 0 if parts is None else parts.num_spared

    def _held_first(self) -> NDArray[np.int64] | None:
        """The order in which groups that are held out come first; None for as they are."""
        held = self.estimator.course.held
        if not held or self._rows is None or self._rows.groups is None:
            return None
        parts = self.parted(held)
        assert parts is not None and parts.num_spared == held, "as many as before"
        places = np.arange(len(self._rows))
        return np.concatenate([places[parts.spared], places[parts.kept]])

    def answer(self, x: Matrix) -> Vector:
        from reparto.search.techniques._network_training import threads_held

        with threads_held(self.threads):
            found: Vector = self.estimator.answer(_single(x), classes=self.facts.is_classification)
        return found

    def save(self, folder: Path) -> None:
        """Write weights as safetensors, and the rest as JSON."""
        import torch
        from safetensors.torch import save_file

        tensors = {
            f"preparation.{name}": torch.from_numpy(np.ascontiguousarray(value))
            for name, value in self.preparation.state.items()
        }
        if self._constant is not None:
            tensors["constant"] = torch.from_numpy(np.ascontiguousarray(self._constant))
        if self._present is not None:
            tensors["present"] = torch.from_numpy(self._present)
        about: dict[str, Any] = {"centre": self._centre, "scale": self._scale, "shape": None}
        if self.estimator is not None and self._constant is None:
            about["shape"] = dataclasses.asdict(self.estimator.shape)
            about["course"] = dataclasses.asdict(self.estimator.course)
            about["epochs"] = self.estimator.best_epoch or self.estimator.epoch
            tensors |= {
                f"weights.{name}": value.contiguous()
                for name, value in self.estimator.weights().items()
            }
        save_file(tensors, folder / WEIGHTS)
        text = json.dumps(about, indent=1)
        (folder / ABOUT).write_text(f"{text}\n", encoding="utf-8")

    def read(self, folder: Path) -> None:
        """Be what `save` has written.

        Raises:
            UsageError: If it is not there.
        """
        from safetensors.torch import load_file

        try:
            about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
            tensors = load_file(folder / WEIGHTS)
        except FileNotFoundError as error:
            raise UsageError(
                f"there is no {error.filename or folder / WEIGHTS}",
                remedy="search again: the model is not whole",
            ) from error
        state = {
            name.removeprefix("preparation."): value.numpy()
            for name, value in tensors.items()
            if name.startswith("preparation.")
        }
        self.preparation = Preparation(self.prepares, self.facts, state)
        self._centre, self._scale = about["centre"], about["scale"]
        self._constant = tensors["constant"].numpy() if "constant" in tensors else None
        self._present = tensors["present"].numpy() if "present" in tensors else None
        if about["shape"] is not None:
            self._read_network(about, tensors)

    def _read_network(self, about: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
        from reparto.search.techniques._network_module import Shape
        from reparto.search.techniques._network_training import Course, Training

        self.estimator = Training(Shape(**about["shape"]), Course(**about["course"]))
        weights = {
            name.removeprefix("weights."): value
            for name, value in tensors.items()
            if name.startswith("weights.")
        }
        self.estimator.model.load_state_dict(weights)
        self.estimator.epoch = about["epochs"]


class Network(EstimatorTechnique):
    """A network for tables: see ``_network_module.py``. It is trained on ``workers`` processes."""

    kind = "network"
    domains = ("regression", "binary", "multiclass")
    resource = "epochs"
    slow_beyond_rows = 100_000
    trains = _NetworkTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        return Params(
            self.kind,
            (
                Param("width", Whole(1, 8192), 128, ("hidden_size", "layer_size", "hidden_dim")),
                Param("depth", Whole(0, 64), 2, ("num_layers", "n_layers")),
                Param("dropout", Number(0.0, 0.95), 0.1),
                Param("members", Whole(1, 256), 4, ("ensemble_size",)),
                Param("embedding", OneOf(("none", "periodic")), "none"),
                Param("learning_rate", Number(0.0, above=True), 2e-3, ("lr", "stepSize")),
                Param("weight_decay", Number(0.0), 1e-3, ("l2", "alpha")),
                Param("epochs", Whole(1), None, ("max_iter", "maxIter", "iterations")),
                Param("batch_size", Whole(1), None, ("blockSize",)),
                Param("patience", Whole(1), 8, ("n_iter_no_change",)),
                Param("held", Number(0.01, 0.5), 0.15, ("validation_fraction",)),
                Param("workers", Whole(1, 1024), 1),
                Param("seed", Whole(0), None, ("random_state",)),
            ),
        )

    def space(self, facts: TableFacts) -> Space:
        """How large, how fast, and how much is held back."""
        return {
            "width": Choice((64, 128, 256)),
            "depth": Int(1, 4),
            "dropout": Float(0.0, 0.5),
            "embedding": Choice(("none", "periodic")),
            "learning_rate": Float(5e-4, 1e-2, log=True),
            "weight_decay": Float(1e-5, 0.3, log=True),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Plain, with embedded numbers, and a smaller one that is held back more."""
        return (
            {"embedding": "none"},
            {"embedding": "periodic"},
            {"width": 64, "depth": 3, "dropout": 0.35, "weight_decay": 0.01},
        )

    def _trainer(self, settings: Settings, setting: Setting) -> _NetworkTrainer:
        params = self.params(setting.facts.domain)
        return _NetworkTrainer(params.read(settings), setting, params.notes(settings))

    def load(self, folder: Path, about: Mapping[str, Any]) -> _NetworkTrainer:
        """What was saved; executes nothing of it."""
        from reparto.spec import from_plain

        facts = from_plain(TableFacts, about["facts"])
        made = self._trainer(about["settings"], Setting(facts=facts))
        made.read(folder)
        return made


def _single(x: Matrix) -> NDArray[np.float32]:
    return np.ascontiguousarray(np.clip(x, -1e6, 1e6), dtype=np.float32)


def _epochs_for(num_rows: int) -> int:
    return max(_FEWEST_EPOCHS, min(_MOST_EPOCHS, _ROWS_IN_ALL // max(1, num_rows)))


def _batch_for(num_rows: int) -> int:
    """About thirty steps an epoch on small tables, with batches of 32 to 512 rows."""
    batch = 32
    while batch < 512 and batch * 32 < num_rows:
        batch *= 2
    return batch
