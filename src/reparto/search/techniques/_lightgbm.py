"""LightGBM. Training goes on tree by tree, and what is kept is its own text, not a pickle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reparto.errors import MissingExtraError, UsageError
from reparto.search._rows import Matrix, Vector
from reparto.search._space import Choice, Float, Int, Space
from reparto.search.techniques._base import Trainer
from reparto.search.techniques._boosting import (
    ENOUGH_TO_STOP,
    ITERATIONS,
    LEARNING_RATE,
    LOSS,
    PATIENCE,
    SPARED,
)
from reparto.search.techniques._estimator import EstimatorTechnique, EstimatorTrainer
from reparto.search.techniques._kept import write_kept
from reparto.search.techniques._params import Flag, Number, Param, Params, Whole
from reparto.search.techniques._portfolio import least_share, of_lightgbm
from reparto.search.techniques._prepare import is_sparse
from reparto.search.techniques._tree_params import (
    IDLE,
    MAX_DEPTH,
    MIN_SAMPLES_LEAF,
    SEED,
    THRESHOLD,
    THRESHOLDS,
)
from reparto.spec import Domain, Settings, TableFacts

_NAME = "booster.txt"
#: Of a category with more levels, splits by level are noise: it is taken as a number.
MOST_LEVELS = 1000


class LightTrainer(EstimatorTrainer):
    """A booster that grows."""

    prepares = "plain"
    scales_target = True  # labels are float32 in it
    goes_on = True

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._best: tuple[float, int] | None = None
        self._is_over = False
        self._tried = self._in_vain = 0

    def make(self, num_rows: int, num_columns: int) -> Any:
        return None  # made with its rows, in `grow`

    def grow(self, x: Matrix, y: Vector | None, share: float) -> None:
        if self.estimator is None:
            self.estimator = self._begun(x, y)
        target = max(1, round(share * self.settings["iterations"]))
        booster = self.estimator
        while not self._is_over and self._tried < target:
            self._tried += 1
            # That no split was found may be bad luck where splits, columns or rows are drawn.
            self._in_vain = self._in_vain + 1 if booster.update() else 0
            self._is_over = self._in_vain >= (PATIENCE if self._draws() else 1)
            if booster.name_valid_sets:
                self._look(booster)
        if share >= 1.0:
            booster.free_dataset()
            booster.train_set = None

    def _draws(self) -> bool:
        """Whether another tree of the same rows would be another one."""
        settings = self.settings
        drawn = min(settings["max_features"], settings["subsampling_rate"]) < 1.0
        return bool(settings["extra_trees"] or drawn)

    def _look(self, booster: Any) -> None:
        """Remember when the spared rows were foretold best."""
        loss, done = float(booster.eval_valid()[0][2]), booster.current_iteration()
        if self._best is None or loss < self._best[0]:
            self._best = (loss, done)
        elif done - self._best[1] >= PATIENCE:
            self._is_over = True

    def _begun(self, x: Matrix, y: Vector | None) -> Any:
        lgb = _lightgbm()
        assert y is not None
        params = self._told(x.shape[0])
        parts = self.parted(round(SPARED * len(y))) if self._stops(len(y)) else None
        # Whether any levels are split by is known to the data set, and the booster reads it there.
        data = lgb.Dataset(
            _plain(x if parts is None else x[parts.kept]),
            label=y if parts is None else y[parts.kept],
            params=params,
            categorical_feature=self._categories(x),
            free_raw_data=True,
        )
        booster = lgb.Booster(params, data)
        if parts is not None:
            rows, truth = _plain(x[parts.spared]), y[parts.spared]
            spared = lgb.Dataset(rows, label=truth, reference=data, params=params)
            booster.add_valid(spared, "spared")
        return booster

    def _stops(self, num_rows: int) -> bool:
        stops = self.settings["early_stopping"]
        if stops is None:
            stops = num_rows >= ENOUGH_TO_STOP
        return bool(stops) and round(SPARED * num_rows) >= 2

    def _categories(self, x: Matrix) -> list[int]:
        if is_sparse(x):
            return []
        return [
            place
            for place, column in enumerate(self.facts.columns)
            if column.kind == "category" and len(column.levels) <= MOST_LEVELS
        ]

    def _told(self, num_rows: int) -> dict[str, Any]:
        settings = self.settings
        num_classes = 0 if self._present is None else len(self._present)
        if num_classes == 0:
            objective: dict[str, Any] = {"objective": "regression"}
            if settings["loss"] == "absolute":
                objective = {"objective": "regression_l1"}
        elif num_classes == 2:
            objective = {"objective": "binary"}
        else:
            objective = {"objective": "multiclass", "num_class": num_classes}
        depth = settings["max_depth"]
        return {
            **objective,
            "learning_rate": settings["learning_rate"],
            "num_leaves": settings["num_leaves"],
            "max_depth": -1 if depth is None else max(1, depth),
            "min_data_in_leaf": settings["min_samples_leaf"],
            "min_sum_hessian_in_leaf": settings["min_child_weight"],
            "min_gain_to_split": settings["min_info_gain"],
            "lambda_l1": settings["l1"],
            "lambda_l2": settings["l2"],
            "feature_fraction": settings["max_features"],
            "bagging_fraction": settings["subsampling_rate"],
            "bagging_freq": 1 if settings["subsampling_rate"] < 1.0 else 0,
            "extra_trees": settings["extra_trees"],
            "max_bin": settings["max_bins"],
            "feature_pre_filter": False,
            "deterministic": True,
            "force_col_wise": True,
            "num_threads": self.threads,
            "seed": self.seed,
            "verbosity": -1,
        }

    def answer(self, x: Matrix) -> Vector:
        best = self._best[1] if self._best else -1
        values: Vector = self.estimator.predict(
            _plain(x), num_iteration=best, num_threads=self.threads
        )
        if self.facts.is_classification and values.ndim == 1:
            return np.stack([1.0 - values, values], axis=1)
        return values

    def weights(self) -> Vector | None:
        best = self._best[1] if self._best else -1
        found: Vector = self.estimator.feature_importance("gain", iteration=best)
        return found

    def save(self, folder: Path) -> None:
        """Write ``booster.txt`` beside ``model.skops``."""
        state = self.state()
        if state.pop("estimator") is not None:
            best = self._best[1] if self._best else -1
            text = self.estimator.model_to_string(num_iteration=best)
            (folder / _NAME).write_text(text, encoding="utf-8")
        write_kept({**state, "estimator": None}, folder)

    def read_booster(self, folder: Path) -> None:
        """Take over what was written."""
        if self._constant is not None:
            return
        path = folder / _NAME
        if not path.exists():
            raise UsageError(f"there is no {path}", remedy="search again: the model is not whole")
        self.estimator = _lightgbm().Booster(model_file=str(path))


class LightGBM(EstimatorTechnique):
    """Boosted trees that grow leaf by leaf."""

    kind = "lightgbm"
    domains = ("regression", "binary", "multiclass")
    resource = "iterations"
    takes_sparse = True
    needs = ("lightgbm", "search")
    trains = LightTrainer

    def params(self, domain: Domain) -> Params:
        """All that may be set."""
        fraction = Number(0.0, 1.0, above=True)
        own = (
            Param("iterations", Whole(1), 100, ITERATIONS),
            Param("learning_rate", Number(0.0, above=True), 0.1, LEARNING_RATE),
            Param("num_leaves", Whole(2, 131072), 31, ("max_leaf_nodes",)),
            MAX_DEPTH,
            Param(MIN_SAMPLES_LEAF.name, MIN_SAMPLES_LEAF.kind, 20, MIN_SAMPLES_LEAF.also),
            Param("min_child_weight", Number(0.0), 1e-3, ("min_sum_hessian_in_leaf",)),
            Param("min_info_gain", Number(0.0), 0.0, ("min_gain_to_split", "min_split_gain")),
            Param("l1", Number(0.0), 0.0, ("reg_alpha", "lambda_l1")),
            Param("l2", Number(0.0), 0.0, ("reg_lambda", "lambda_l2")),
            Param("max_features", fraction, 1.0, ("feature_fraction", "colsample_bytree")),
            Param("subsampling_rate", fraction, 1.0, ("subsample", "bagging_fraction")),
            Param("extra_trees", Flag(), False),
            Param("max_bins", Whole(2, 65535), 255, ("max_bin",)),
            Param("early_stopping", Flag(), None),
            SEED,
        )
        more = (LOSS,) if domain == "regression" else (*THRESHOLDS, THRESHOLD)
        return Params(self.kind, (*own, *more, *IDLE))

    def space(self, facts: TableFacts) -> Space:
        """Trees, their size, and how much each of them may follow the rows."""
        return {
            "iterations": Int(30, 2000, log=True),
            "learning_rate": Float(0.008, 0.3, log=True),
            "num_leaves": Int(4, 160, log=True),
            "min_samples_leaf": Int(2, 100, log=True),
            "max_features": Float(least_share(facts), 1.0),
            "subsampling_rate": Float(0.5, 1.0),
            "l1": Float(1e-3, 10.0, log=True),
            "l2": Float(1e-3, 30.0, log=True),
            "extra_trees": Choice((False, True)),
        }

    def portfolio(self, facts: TableFacts) -> Sequence[Settings]:
        """Known ones, by the size of the table."""
        return of_lightgbm(facts)

    def load(self, folder: Path, about: Mapping[str, Any]) -> Trainer:
        """What was saved; executes nothing of it."""
        made = super().load(folder, about)
        assert isinstance(made, LightTrainer)
        made.read_booster(folder)
        return made


def _plain(x: Matrix) -> Matrix:
    """LightGBM reads float32 and float64 where they lie, if rows do not have holes."""
    if is_sparse(x):
        return x
    return x if x.flags.c_contiguous or x.flags.f_contiguous else np.ascontiguousarray(x)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError as error:
        raise MissingExtraError("lightgbm", "search") from error
    return lightgbm
