"""The same candidates without reparto: forked processes that call LightGBM or scikit-learn.

Each fork has its share of the candidates from the beginning and talks to nobody until its end. The
table lies in memory that all of them map, as a search lays it out: what a fold is trained on is a
view of it, and is not copied.
"""

from __future__ import annotations

import gc
import importlib
import json
import mmap
import os
import statistics
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: By technique: settings with which a candidate takes seconds on the table.
KINDS: dict[str, dict[str, Any]] = {
    "lightgbm": {"iterations": 120, "num_leaves": 31},
    "random-forest": {"num_trees": 4},
}
_LIBRARIES = {"lightgbm": "lightgbm", "random-forest": "sklearn.ensemble"}
_Floats = NDArray[np.float64]
Json = dict[str, Any]


def read_table(path: str, folds: int) -> tuple[_Floats, _Floats]:
    """Rows and targets, in memory that forks share; all but the last fold's once more behind."""
    rows = np.loadtxt(path, delimiter=",", skiprows=1)
    size = len(rows) // folds
    rows = np.concatenate([rows[: size * folds], rows[: size * (folds - 1)]])
    shared = np.frombuffer(mmap.mmap(-1, rows.nbytes), np.float64)
    x, y = shared[len(rows) :].reshape(len(rows), -1), shared[: len(rows)]
    x[:], y[:] = rows[:, :-1], rows[:, -1]
    return x, y


def run_bare(x: _Floats, y: _Floats, kind: str, workers: int, count: int, folds: int) -> Json:
    """All candidates, by so many forks."""
    importlib.import_module(_LIBRARIES[kind])
    gc.collect()
    gc.freeze()
    lines = []
    for worker in range(workers):
        read, write = os.pipe()
        if os.fork() == 0:
            status = 1
            try:
                told = [_candidate(x, y, kind, n, folds) for n in range(worker, count, workers)]
                os.write(write, json.dumps(told).encode())
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        lines.append(os.fdopen(read))
    spans = [span for line in lines for span in json.loads(line.read())]
    for _ in lines:
        os.wait()
    began, ended = min(begin for begin, _ in spans), max(end for _, end in spans)
    return {
        "search_s": ended - began,
        "candidate_s": statistics.median(end - begin for begin, end in spans),
        "between": [began, ended],
    }


def _candidate(x: _Floats, y: _Floats, kind: str, seed: int, folds: int) -> tuple[float, float]:
    """Trained and tested on each fold; when it began, and when it ended."""
    begin, size = time.monotonic(), len(y) // (2 * folds - 1)
    for fold in range(folds):
        tested = slice(fold * size, (fold + 1) * size)
        known = slice((fold + 1) * size, (fold + folds) * size)
        _fit(x[known], y[known], x[tested], kind, seed)
    return begin, time.monotonic()


def _fit(x: _Floats, y: _Floats, asked: _Floats, kind: str, seed: int) -> None:
    settings = KINDS[kind]
    if kind == "lightgbm":
        import lightgbm

        told = {"num_leaves": settings["num_leaves"], "num_threads": 1, "seed": seed}
        told |= {"objective": "regression", "force_col_wise": True, "verbosity": -1}
        data = lightgbm.Dataset(x, y, params=told)
        lightgbm.train(told, data, settings["iterations"]).predict(asked, num_threads=1)
        return
    from sklearn.ensemble import RandomForestRegressor

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        forest = RandomForestRegressor(
            settings["num_trees"], max_features=1 / 3, random_state=seed, n_jobs=1
        )
        forest.fit(x, y).predict(asked)
